"""The programs of an elastic job in their pods: `start.sh master`, `pserver` and `trainer`."""
