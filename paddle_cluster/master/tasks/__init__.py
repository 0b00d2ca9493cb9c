"""The master's rules for tasks, members and passes, and its stored state. The rules use no clock, files or sockets.

No I/O.
"""
