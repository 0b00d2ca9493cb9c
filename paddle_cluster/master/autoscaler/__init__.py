"""The program `paddle autoscaler` sets the number of trainers of each task job of a cluster."""
