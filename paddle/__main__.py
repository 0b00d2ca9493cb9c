"""`python -m paddle` is the `paddle` command."""

import gc
import sys

from paddle import interrupts

if __name__ == "__main__":
    interrupts.accept()
    from paddle.command import main

    # a launcher starts it with the number of a descriptor; for a user there is no such command
    is_forked = sys.argv[1:2] == ["fork-server"] and sys.argv[2:3] != [] and sys.argv[2].isdecimal()
    if is_forked:
        from paddle import fork_server
        from paddle_base.runtime.forking.server import end_program

        fork_server.serve(sys.argv[2:])  # it returns in a forked program, with the command line of that program
    status = main()
    # Without this call, the interpreter collects garbage at its end. In a trainer, the collection takes 70 ms of
    # processor time, and delays the next attempt of the job (bench/recovery.py).
    gc.freeze()
    if is_forked and sys.argv[1] == "pserver":
        end_program(status)
    sys.exit(status)
