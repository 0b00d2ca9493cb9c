"""Workers as processes of this machine: their start, their output, and the verdict about a finished job."""
