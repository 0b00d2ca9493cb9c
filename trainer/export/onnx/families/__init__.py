"""The nodes of each layer type: a module for each family of layers. No I/O.

A function of a type gets a `LayerExport` and returns the value before the activation, which `network.finish` applies.
"""
