"""A trainer's side of a task job, whose trainers and servers join and leave.

- `options` contains the trainer's identity and settings, and the attempt of each server.
- `requests` contains the requests ENTER and COMMIT, and pushes that have a number or belong to a round.
- `clients` contains the connections to all dense services and to all sparse services.
- `services` joins dense and sparse services together, and uses them until a server is lost.
- `pushes` pushes gradients. In asynchronous training every push has a number, and counts once on each service. In
  synchronous training every push belongs to a round, which counts on all services or on none.
"""
