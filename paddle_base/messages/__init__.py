"""Sends control messages between programs by pyzmq: membership, requests and pushed messages, but no gradients."""
