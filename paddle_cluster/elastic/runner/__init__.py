"""Modules of Horovod 0.28's `horovod.runner` that have no other place in `elastic`.

- `horovod.runner.common.util.X` and `horovod.runner.common.service.X` are `paddle_cluster.elastic.runner.common.X`.
- `horovod.runner.util.X` is `paddle_cluster.elastic.runner.util.X`.
- `horovod.runner.http.http_client` is `paddle_cluster.elastic.runner.http_client`.
- `horovod.runner.task.task_service` is `paddle_cluster.elastic.runner.task_service`.
- `horovod.runner.gloo_run` is `paddle_cluster.elastic.runner.gloo_run`, and `run` is
  `paddle_cluster.elastic.launch.run`.

Names, signatures and return values are Horovod's. No module uses pickle: programs send JSON and arrays, and read data
only if a signature proves the secret.
"""

from paddle_cluster.elastic.launch import _HorovodArgs, run

__all__ = ["_HorovodArgs", "run"]
