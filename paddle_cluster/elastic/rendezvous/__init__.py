"""The requests of workers to the driver over HTTP: the handler in the driver, and the client in a worker."""

from paddle_cluster.elastic.rendezvous.handler import GET_RANK_AND_SIZE, PUT_WORKER_ADDRESSES, create_rendezvous_handler

__all__ = ["GET_RANK_AND_SIZE", "PUT_WORKER_ADDRESSES", "create_rendezvous_handler"]
