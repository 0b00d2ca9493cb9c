"""Messages between the launchers of a job: trainer 0's launcher is the server, the other launchers are its clients."""
