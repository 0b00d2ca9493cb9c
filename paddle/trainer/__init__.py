"""What old configs and providers import from paddle.trainer; the implementation is the top-level package `trainer`."""
