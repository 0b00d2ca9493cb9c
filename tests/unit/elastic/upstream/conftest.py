"""The shim: Horovod's module names, mapped to ours, so that tests of its own run against our modules."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

NAMES = {
    "horovod.runner.elastic.constants": "paddle_cluster.elastic.constants",
    "horovod.runner.elastic.discovery": "paddle_cluster.elastic.discovery",
    "horovod.runner.elastic.driver": "paddle_cluster.elastic.driver",
    "horovod.runner.elastic.registration": "paddle_cluster.elastic.registration",
    "horovod.runner.elastic.rendezvous": "paddle_cluster.elastic.rendezvous",
    "horovod.runner.elastic.settings": "paddle_cluster.elastic.settings",
    "horovod.runner.elastic.worker": "paddle_cluster.elastic.worker",
    "horovod.runner.common.util.config_parser": "paddle_cluster.elastic.launching.flags",
    "horovod.runner.common.util.hosts": "paddle_cluster.elastic.hosts",
    "horovod.runner.common.util.settings": "paddle_cluster.elastic.settings",
    "horovod.runner.http.http_server": "paddle_cluster.elastic.http_server",
    "horovod.runner.launch": "paddle_cluster.elastic.launch",
    "horovod.common.elastic": "paddle_cluster.elastic.state",
    "horovod.common.exceptions": "paddle_cluster.elastic.errors",
}


def install() -> None:
    for name, ours in NAMES.items():
        parts = name.split(".")
        for depth in range(1, len(parts)):
            package = ".".join(parts[:depth])
            if package not in sys.modules:
                module = ModuleType(package)
                module.__path__ = []
                sys.modules[package] = module
                if depth > 1:
                    setattr(sys.modules[".".join(parts[: depth - 1])], parts[depth - 1], module)
        sys.modules[name] = importlib.import_module(ours)
        setattr(sys.modules[".".join(parts[:-1])], parts[-1], sys.modules[name])
    for name in ("run", "_HorovodArgs"):
        setattr(sys.modules["horovod.runner"], name, getattr(sys.modules["horovod.runner.launch"], name))


install()
