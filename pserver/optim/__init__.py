"""The update rules, the learning methods around them, schedules, weight decay and averaging."""
