"""Stands between the network and libzmq."""
