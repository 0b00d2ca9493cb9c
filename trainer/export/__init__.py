"""The program `paddle export`: trained networks in the formats of other programs.

`model.py` reads a network with its parameters from each kind of file into one record. `onnx/` writes it as a graph of
ONNX. The packages of the formats (`pip install 'paddle-on-kubernetes[export]'`) are imported by the rooms of the
formats alone, after the command line was read.
"""
