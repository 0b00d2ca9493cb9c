"""Train with a master. Trainers join and leave the job, and train one task after another."""
