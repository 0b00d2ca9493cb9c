"""What a launcher asks of the Kubernetes API."""
