"""The membership of a job: the processes in the slots, the end of a generation, and the plan of the next generation."""
