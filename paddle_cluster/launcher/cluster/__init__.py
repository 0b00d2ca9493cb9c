"""The launcher's use of the Kubernetes API."""
