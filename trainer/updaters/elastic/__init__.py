"""Parameter servers of an elastic job, for a trainer whose tasks a master assigns.

errors         errors that the training loop handles
views          the members of synchronous rounds, from the master
first_values   any one trainer sends the initial values
servers        finds the servers in the registry, joins them, and joins again after a loss
updater        the `Updater` for them
"""
