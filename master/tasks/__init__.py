"""The rules of the master for tasks, members and passes, and its stored state; without clock, files or sockets."""
