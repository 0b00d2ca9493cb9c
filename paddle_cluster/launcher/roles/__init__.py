"""Run the program of a pod of a task job, for `start.sh master`, `start.sh pserver` and `start.sh trainer`."""
