"""A gate between the network and libzmq: it bounds the resources that unauthenticated peers can use."""
