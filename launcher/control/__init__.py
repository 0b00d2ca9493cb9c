"""Messages between the launchers of a job: trainer 0's launcher is the server, the others are its clients."""
