"""A job from its begin to its end: its driver, its workers, and the signals of the process that runs it."""
