"""`paddle autoscaler`: how many trainers each elastic job of a cluster has."""
