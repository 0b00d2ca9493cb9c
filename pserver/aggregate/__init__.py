"""Turn the gradients of several trainers into optimiser steps.

- `sync_dense` and `sync_sparse` make synchronous rounds: they add the gradients of all trainers, then take one step.
- `async_dense` and `async_sparse` serve asynchronous training: every gradient is a separate step.
- `task_rounds` makes synchronous rounds in two phases, for trainers that join and leave.
- `round_agreement` decides whether a round of a task job counts; a round counts on all services or on none.
- `staleness` decides which gradients of slow trainers are discarded in asynchronous training. No I/O.
"""
