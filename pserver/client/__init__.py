"""The trainer's side of the parameter servers: connections, requests, dense and sparse parameters."""
