"""A trainer's side of an elastic job, whose trainers and servers join and leave.

options     the trainer's identity and settings; each server has its own attempt
requests    ENTER, COMMIT, and pushes with a number or a round
clients     the connections to all dense and to all sparse services
services    both together, from joining until a server is lost
pushes      asynchronous: every push has a number, and repeated pushes count once on each service
rounds      synchronous: a round of a view counts on all services or on none
"""
