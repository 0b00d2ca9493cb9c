#!/bin/sh
# Print the hosts of the job, one on each line, with their slots. The driver runs this script every second, so you can
# edit the file `hosts` while the job runs.
cat hosts 2>/dev/null || echo localhost:2
