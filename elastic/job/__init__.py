"""A job from begin to end: the driver, the workers, and the signals of the process that runs the job."""
