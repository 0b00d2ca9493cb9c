"""Serves the liveness, readiness and counters of a program, as pages for its pod's probes and for Prometheus."""
