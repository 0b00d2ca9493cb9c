"""The trainer's side of the parameter servers: connections and requests, for dense parameters and for tables."""
