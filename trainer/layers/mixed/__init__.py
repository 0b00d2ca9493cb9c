"""Layers that are made of projections and operators."""
