"""The names that old configs and providers import; the implementation is the top-level package `trainer`."""
