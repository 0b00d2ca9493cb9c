"""The code that all programs share: errors, log lines, liveness, health and metrics pages, files, and addresses."""

VERSION = "0.11.0"  # a test compares this version with the versions in setup.py and Dockerfile
