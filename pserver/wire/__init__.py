"""The data path between trainer and parameter server: messages, authentication, connections, shared memory."""
