"""The programs of a pod: pserver and trainer."""
