"""The parts of a service that are special to task jobs, whose trainers join and leave.

docs/pserver.md describes the differences from other services.

- `sessions` contains the present trainers; it removes lost trainers, and replaces the session of a restarted trainer.
- `roster` contains the data that a service stores for each trainer, even for a trainer that has left.
- `values` receives initial values from any trainer, and answers FETCH.
- `async_pushes` receives asynchronous gradients; a repeated gradient counts once.
- `round_requests` makes synchronous rounds in two phases.
- `service_snapshot` describes the content of a service's snapshot.
- `service` is the whole service.
"""
