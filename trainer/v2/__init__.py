"""The library under `paddle.v2`: layers that are made when a topology needs them, parameters, training and inference.

Source: spec/v2.md; golden/v2/README.md.
"""
