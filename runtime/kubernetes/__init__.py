"""Answers of a Kubernetes API server, as every program of ours reads them."""
