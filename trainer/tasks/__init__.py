"""Training with a master: task by task, with trainers that come and go."""
