"""Run the program of a pod of an elastic job: `start.sh master`, `start.sh pserver` or `start.sh trainer`."""
