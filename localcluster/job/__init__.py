"""The Job: its manifest as data, the decisions about its pods, and the controller that carries them out."""
