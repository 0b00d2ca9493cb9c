"""`paddle master`: it distributes the tasks of a data set to trainers that join and leave, pass by pass."""
