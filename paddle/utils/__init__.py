"""Programs that users start as `python -m paddle.utils.<name>`."""
