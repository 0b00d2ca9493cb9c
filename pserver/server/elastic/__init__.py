"""A service of an elastic job, whose trainers join and leave, as far as it differs from other services.

docs/pserver.md describes the differences.

- `sessions` contains the present trainers; it removes lost trainers, and replaces the session of a restarted trainer.
- `roster` contains what the service knows of each trainer, present or not.
- `values` receives initial values from any trainer, and answers FETCH.
- `async_pushes` receives asynchronous gradients; a repeated gradient counts once.
- `round_requests` makes synchronous rounds in two phases.
- `captures` describes the content of a service's snapshot.
- `service` is the whole service.
"""
