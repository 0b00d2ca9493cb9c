"""A service of an elastic job, whose trainers join and leave: the differences from a static service (docs/pserver.md).

sessions        the present trainers: a lost one is removed, and a restarted one replaces its earlier session
roster          the service's knowledge of each trainer, present or not
values          initial values from any trainer, and the answers to FETCH
async_pushes    asynchronous gradients; a repeated one counts once
round_requests  synchronous rounds in two phases
captures        the content of a service's snapshot
service         the whole service
"""
