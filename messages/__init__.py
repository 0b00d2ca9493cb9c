"""Control messages between programs over pyzmq: membership, requests and pushes, but never gradients."""
