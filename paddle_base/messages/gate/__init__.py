"""A gate between the network and libzmq, which bounds the resources that unauthenticated peers can use."""
