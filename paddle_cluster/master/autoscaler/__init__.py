"""The program `paddle autoscaler` sets the number of trainers of each elastic job of a cluster."""
