"""What all programs share: errors, log lines, liveness, pages of health and metrics, files, addresses."""

VERSION = "0.10.1"  # as in setup.py and Dockerfile (a test compares)
