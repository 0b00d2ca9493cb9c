"""The parameter server and its client: dense parameters and rows of tables, synchronous or asynchronous.

Importing the package costs nothing. Import the room that you need: `wire`, `server`, `aggregate`, `store`, `optim`,
`client`.
"""
