"""The shim: Horovod's module names, mapped to ours, so that tests of its own run against our modules."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

NAMES = {
    "horovod.runner.elastic.constants": "elastic.constants",
    "horovod.runner.elastic.discovery": "elastic.discovery",
    "horovod.runner.elastic.driver": "elastic.driver",
    "horovod.runner.elastic.registration": "elastic.registration",
    "horovod.runner.elastic.rendezvous": "elastic.rendezvous",
    "horovod.runner.elastic.settings": "elastic.settings",
    "horovod.runner.elastic.worker": "elastic.worker",
    "horovod.runner.common.service.task_service": "elastic.runner.common.task_service",
    "horovod.runner.common.util.codec": "elastic.runner.common.codec",
    "horovod.runner.common.util.config_parser": "elastic.launching.config_parser",
    "horovod.runner.common.util.env": "elastic.runner.common.env",
    "horovod.runner.common.util.host_hash": "elastic.runner.common.host_hash",
    "horovod.runner.common.util.hosts": "elastic.hosts",
    "horovod.runner.common.util.network": "elastic.runner.common.network",
    "horovod.runner.common.util.safe_shell_exec": "elastic.runner.common.safe_shell_exec",
    "horovod.runner.common.util.secret": "elastic.runner.common.secret",
    "horovod.runner.common.util.settings": "elastic.settings",
    "horovod.runner.common.util.timeout": "elastic.runner.common.timeout",
    "horovod.runner.common.util.tiny_shell_exec": "elastic.runner.common.tiny_shell_exec",
    "horovod.runner.gloo_run": "elastic.runner.gloo_run",
    "horovod.runner.http.http_client": "elastic.runner.http_client",
    "horovod.runner.http.http_server": "elastic.http_server",
    "horovod.runner.launch": "elastic.launch",
    "horovod.runner.task.task_service": "elastic.runner.task_service",
    "horovod.runner.util.cache": "elastic.runner.util.cache",
    "horovod.runner.util.network": "elastic.runner.util.network",
    "horovod.runner.util.streams": "elastic.runner.util.streams",
    "horovod.runner.util.threads": "elastic.runner.util.threads",
    "horovod.common.elastic": "elastic.state",
    "horovod.common.exceptions": "elastic.errors",
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
        setattr(sys.modules["horovod.runner"], name, getattr(importlib.import_module("elastic.runner"), name))


install()
