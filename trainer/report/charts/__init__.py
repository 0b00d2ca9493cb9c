"""Charts of the report: axes, curves and the graph of layers, drawn as SVG."""
