"""What the master decides by, without a clock, files or sockets: tasks, members, passes, and what is stored of them."""
