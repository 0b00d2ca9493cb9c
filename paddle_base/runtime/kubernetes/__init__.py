"""The client of the Kubernetes API server that all programs share."""
