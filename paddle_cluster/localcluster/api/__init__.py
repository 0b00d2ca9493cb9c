"""The part of the Kubernetes API for pods: objects, requests and responses, and the server."""
