"""A job from beginning to end: the driver, the workers, and the signals of the process that runs the job."""
