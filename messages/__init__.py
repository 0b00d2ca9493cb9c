"""Control messages between programs over pyzmq: membership, requests and pushes. Gradients never use them."""
