"""Liveness, readiness and counters of a program: pages for its pod's probes and for Prometheus."""
