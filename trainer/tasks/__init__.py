"""Training with a master: task by task, with trainers that join and leave."""
