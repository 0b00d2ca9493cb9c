"""What the requests of a trainer that has joined do: one class for each group of requests."""
