"""Layers over images and volumes, and layers for object detection."""
