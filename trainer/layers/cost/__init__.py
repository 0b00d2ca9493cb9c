"""Layers that training makes smaller."""
