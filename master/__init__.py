"""`paddle master`: gives the tasks of a data set to trainers that come and go, pass by pass."""
