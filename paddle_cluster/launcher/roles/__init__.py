"""Run the program of a pod of an elastic job, for `start.sh master`, `start.sh pserver` and `start.sh trainer`."""
