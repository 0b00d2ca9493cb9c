"""Workers as processes of this machine: their start, their output, and the decision whether a job has succeeded."""
