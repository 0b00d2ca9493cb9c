"""A network as a graph of ONNX.

`values.py` says how the output of a layer is represented, `graph.py` builds nodes, `registry.py` finds the function of
a layer type, `families/` has these functions, `network.py` goes through the layers, and `files.py` checks and writes.
"""
