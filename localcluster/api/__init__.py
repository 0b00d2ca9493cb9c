"""The pods part of the Kubernetes API: objects, what is asked and answered, and the server."""
