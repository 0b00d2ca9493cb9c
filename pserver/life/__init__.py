"""The life cycle of a server's process: its options and, in an elastic job, its claim of an index, snapshots and end.

options         the settings from the flags
lease           the claim of an index: a thread renews it, and detects the end of the job
snapshots       when a snapshot is taken, and how it becomes the current one
recovery        resuming from a snapshot
server_life     how the claim, snapshots and the end of the job control the server's loop
health          the health pages
elastic_server  the whole life cycle, from the claim to the exit status
"""
