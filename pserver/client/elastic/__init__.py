"""A trainer's side of an elastic job, whose trainers and servers join and leave.

- `options` contains the trainer's identity and settings, and the attempt of each server.
- `requests` contains ENTER, COMMIT, and pushes with a number or a round.
- `clients` contains the connections to all dense and to all sparse services.
- `services` contains dense and sparse services together, from joining until a server is lost.
- `pushes` pushes gradients. In asynchronous training every push has a number, and counts once on each service. In
  synchronous training a round of a view counts on all services or on none.
"""
