"""A service of an elastic job, whose trainers come and go: what differs from a static one (docs/pserver.md).

sessions        which trainers are there: a lost one is forgotten, and a restarted one takes its own place
roster          what a service knows of each trainer, whether it is there or not
values          first values from any trainer, and what FETCH asks for
async_pushes    asynchronous gradients, each of which counts once, however often it is sent
round_requests  synchronous rounds in two phases
captures        what a snapshot of a service holds
service         all of it together
"""
