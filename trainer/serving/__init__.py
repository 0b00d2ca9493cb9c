"""The program `paddle serve`: it answers requests over HTTP with the outputs of a network, in batches.

front (a thread reads heads) -> a thread for each request: service.py -> batcher.py -> the main thread: model.py
"""
