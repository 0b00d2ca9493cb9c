"""The parameter server and its client, for dense parameters and rows of tables.

Training is synchronous or asynchronous.

Importing `pserver` loads none of its subpackages `wire`, `server`, `aggregate`, `store`, `optim`, `client` and `life`.
Import the subpackage that you need.
"""
