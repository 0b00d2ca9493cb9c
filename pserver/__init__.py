"""The parameter server and its client: dense parameters and rows of tables, synchronous or asynchronous.

Importing `pserver` loads none of its subpackages `wire`, `server`, `aggregate`, `store`, `optim`, `client` and `life`.
Import the subpackage that you need.
"""
