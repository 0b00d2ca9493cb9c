"""A gate between the network and libzmq that bounds the resources of unauthenticated peers."""
