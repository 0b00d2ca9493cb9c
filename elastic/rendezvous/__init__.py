"""What the workers ask the driver for over HTTP: the handler on the driver's side, and the client of a worker."""

from elastic.rendezvous.handler import create_rendezvous_handler

__all__ = ["create_rendezvous_handler"]
