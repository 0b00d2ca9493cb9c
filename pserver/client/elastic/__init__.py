"""A trainer's side of an elastic job, whose trainers and servers come and go.

options     what this trainer is to the servers, each of which has an attempt of its own
requests    ENTER, COMMIT, and pushes with a number or a round
clients     the connections to all dense and to all sparse services
services    both together, from joining until a server is lost
pushes      asynchronous: every push has a number, and counts once on each service however often it is sent
rounds      synchronous: a round of a view counts on all services or on none
"""
