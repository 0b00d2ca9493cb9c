"""The membership of a job: the processes in the slots, the end of each generation, and the plan of the next one."""
