"""Training with a master: trainers join and leave, and train one task after another."""
