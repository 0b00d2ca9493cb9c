"""The parameter servers of a task job, in which a master assigns the trainer's tasks.

errors         errors that the training loop handles
views          the members of synchronous rounds, from the master
first_values   one of the trainers sends the initial values
servers        finds the servers in the registry, joins them, and joins again after a loss
updater        the `Updater` for these servers
"""
