"""The rules of the master, without clock, files or sockets: tasks, members, passes, and their stored form."""
