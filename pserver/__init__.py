"""The parameter server and its client: dense parameters and rows of tables, synchronous or asynchronous.

Importing the package loads no module. Import the room that you need: `wire`, `server`, `aggregate`, `store`, `optim`,
`client`.
"""
