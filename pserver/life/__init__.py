"""The life of a server's process: its options, and in an elastic job its claim of an index, its snapshots, and its end.

options         what the flags say
lease           the claim, renewed by a thread, which also hears how the job ends
snapshots       when a snapshot is taken, and how it becomes the one to go on from
recovery        what a server goes on from
server_life     what these say to the server's loop
health          the health pages
elastic_server  all of it together, from the claim to the exit status
"""
