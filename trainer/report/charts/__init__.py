"""Draw the charts of the report as SVG: curves with axes, and the graph of layers."""
