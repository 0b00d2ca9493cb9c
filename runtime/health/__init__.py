"""Whether a program is alive and ready, and what it has counted: pages for its pod's probes and for Prometheus."""
