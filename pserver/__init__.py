"""The parameter server and its client, dense parameters and rows of tables, in step or asynchronously.

Importing the package touches nothing and costs nothing; import the module that you need
(`pserver.client`, `pserver.rules`, `pserver.methods`, `pserver.segments`, `pserver.shard`, `pserver.blocks`,
`pserver.errors`, `pserver.glog`).
"""
