"""Layers over images and volumes, and detection."""
