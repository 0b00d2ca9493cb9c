"""Recurrent layers, recurrent groups, and the generation of sequences."""
