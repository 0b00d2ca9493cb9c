"""The program `paddle master` distributes the tasks of a data set, pass by pass, to trainers that join and leave."""
