"""Parameter servers of an elastic job, for a trainer that a master gives tasks to.

errors         what the training loop does something about
views          who takes part in synchronous rounds, as the master says
first_values   one trainer gives the first values, whichever it is
servers        finds the servers in the registry, joins them, and joins them again when one was lost
updater        the `Updater` over them
"""
