"""Code that all programs share: errors, log lines, liveness, health and metrics pages, files, addresses."""

VERSION = "0.10.1"  # the same version as in setup.py and Dockerfile; a test compares them
