"""The names that users type: the `paddle` command, and the modules that old configs and providers import.

Nothing is implemented here; `trainer` and `pserver` are the implementation. Importing this package costs nothing.
"""
