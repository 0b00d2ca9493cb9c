"""Optimizers: update rules, learning methods, schedules, weight decay and averaging. No I/O."""
