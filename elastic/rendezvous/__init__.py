"""The requests of workers to the driver over HTTP: the handler in the driver, and the client in a worker."""

from elastic.rendezvous.handler import create_rendezvous_handler

__all__ = ["create_rendezvous_handler"]
