"""Control messages between programs over pyzmq: membership, requests and pushed messages, without gradients."""
