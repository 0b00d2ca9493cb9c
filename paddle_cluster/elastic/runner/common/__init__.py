"""`horovod.runner.common.util`: messages between programs, secrets, deadlines and commands."""
