"""Workers as processes of this machine: how they are started, what becomes of their output, and how a job has ended."""
