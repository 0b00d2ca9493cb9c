"""`horovod.runner.util`: network interfaces, threads, a pipe and a cache."""
