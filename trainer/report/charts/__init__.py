"""Charts of the report: axes, curves, the graph of layers, as SVG."""
