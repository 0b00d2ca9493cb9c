"""The Job: its manifest as data, and the decisions of the Job controller about the Job's pods."""
