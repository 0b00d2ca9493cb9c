"""Messages between the launchers of a job. Trainer 0's launcher is the server, and the other launchers are clients."""
