"""Code of the product that nothing in the product, the examples or the benchmarks uses, as vulture finds it.

Usage: python tests/dead_code.py. It prints each unused name without a reason below, and each reason that has become
unnecessary; if there is any, it ends with 1. Code that only tests use counts as unused.
"""

from __future__ import annotations

import fnmatch
import re
import sys
from pathlib import Path
from typing import NamedTuple

from vulture import Vulture

ROOT = Path(__file__).resolve().parents[1]
PATHS = ["start_paddle.py", "bench", "examples", "paddle", "paddle_base", "paddle_cluster", "pserver", "trainer"]
TABLE = "trainer/config/v1/layer_types.py"  # the table that names the classes of layers, as strings
# decorators that enter functions and classes into tables
REGISTERING = ["@evaluates", "@exports", "@helper", "@projects", "@public"]

_LIBRARY = "a class of the standard library or of requests calls or reads it"
_HOROVOD = "Horovod 0.28's, which its users and tests call"
_2017 = "the name is of 2017, and users' configs and providers have it"
_FIELD = "a field of a message that the config language makes"
_LOCAL = "an argument that the function reads by locals()"
_IN_TABLE = "its name stands in the table of paddle/doctor/probing.py or paddle/completion/tables.py"
REASONS = {
    ("*", "__getattr__"): "Python calls it",
    ("*", "do_[A-Z]*"): _LIBRARY,
    ("*", "log_message"): _LIBRARY,
    ("paddle_base/kernels/exchange.py", "*"): "exchange.c reads or returns it",
    ("paddle_base/runtime/network/timed.py", "response_class"): _LIBRARY,
    ("paddle_base/registry/etcd_access.py", "verify"): _LIBRARY,
    ("paddle_base/registry/etcd_access.py", "cert"): _LIBRARY,
    ("paddle/elastic/torch/elastic/state.py", "*_handler_registry"): _HOROVOD,
    ("paddle_cluster/elastic/constants.py", "HOROVOD_*"): _HOROVOD,
    ("paddle_cluster/elastic/http_server.py", "*"): _LIBRARY,
    ("paddle_cluster/elastic/launch.py", "*"): _HOROVOD,
    ("paddle_cluster/elastic/launching/flags.py", "option_string"): _LIBRARY,
    (
        "paddle_cluster/elastic/membership/history.py",
        "first_*",
    ): "membership.json has them, written from the fields of the class",
    ("paddle_cluster/elastic/worker_reports.py", "record_ready"): _HOROVOD,
    ("paddle_cluster/elastic/registration.py", "record_*"): _HOROVOD,
    ("paddle_cluster/elastic/callbacks.py", "*"): _HOROVOD,
    ("paddle_cluster/elastic/sampler.py", "*"): _HOROVOD,
    ("paddle_cluster/elastic/settings.py", "*"): _HOROVOD,
    ("paddle_cluster/elastic/worker.py", "match_intf"): _HOROVOD,
    (
        "paddle_cluster/launcher/cluster/call_slots.py",
        "CALLS_PER_SECOND",
    ): "the limit that tests hold the slots against",
    (
        "paddle_cluster/localcluster/*",
        "[nrw]*",
    ): "a part of its interface for tests (paddle_cluster/localcluster/__init__.py)",
    ("paddle_cluster/localcluster/api/server.py", "*"): _LIBRARY,
    ("trainer/config/scripts/python2_syntax.py", "load_grammar"): "fissix calls it",
    ("trainer/serving/service.py", "send_error"): _LIBRARY,
    **{
        (f"trainer/v2/{name}.py", "*"): _2017
        for name in ("events", "groups", "optimizer", "parameters", "sgd", "slots", "topology")
    },
    ("paddle/elastic/torch/*", "*"): _HOROVOD,
    ("paddle/v2/*", "*"): _2017,
    ("paddle/completion/tables.py", "*"): _IN_TABLE,
    ("paddle/doctor/*", "check_*"): _IN_TABLE,
    ("paddle/interrupts.py", "unraisablehook"): _LIBRARY,
    ("paddle/utils/image_util.py", "*"): _2017,
    ("paddle_base/runtime/network/answers.py", "*"): _LIBRARY,
    ("paddle_base/runtime/network/bodies.py", "protocol_version"): _LIBRARY,
    ("paddle_base/runtime/network/timed.py", "*"): _LIBRARY,
    ("trainer/config/language/layers/levels.py", "*"): _2017,
    ("trainer/config/language/*", "bias_size"): _FIELD,
    ("trainer/config/language/*", "blocked"): _FIELD,
    ("trainer/config/language/*", "caffe_mode"): _FIELD,
    ("trainer/config/language/*", "selective_fc_full_mul_ratio"): _FIELD,
    ("trainer/config/language/networks/bidirectional.py", "[bf]wd_*"): _LOCAL,
    ("trainer/config/language/networks/image.py", "*"): _LOCAL,
    ("trainer/config/older_groups.py", "target_inlinkid"): _FIELD,
    ("trainer/config/scripts/python2.py", "get_code"): "importlib calls it",
    ("trainer/config/v1/layers.py", "is_layer_type"): _2017,
    ("trainer/layers/image/conv.py", "biased"): "the view of an array that it changes",
}


class Unused(NamedTuple):
    """A name that nothing uses."""

    path: str
    line: int
    name: str
    kind: str


def find_unused(root: Path) -> list[Unused]:
    """Return the unused names of the product that vulture finds, without the names of the config language."""
    vulture = Vulture(ignore_decorators=REGISTERING)
    vulture.scavenge([root / path for path in PATHS if (root / path).exists()], exclude=["*_pb2.py"])
    words = set(re.findall(r"\w+", (root / TABLE).read_text(encoding="utf-8")))
    found = [
        Unused(Path(item.filename).relative_to(root).as_posix(), item.first_lineno, item.name, item.typ)
        for item in vulture.get_unused_code(min_confidence=60)
    ]
    product = [one for one in found if not one.path.startswith(("bench/", "examples/"))]
    return [one for one in product if not (one.path.startswith("trainer/layers/") and one.name in words)]


def main() -> int:
    """Print unused names without a reason, and unnecessary reasons; return the exit status."""
    found = find_unused(ROOT)
    needed = {
        key: [one for one in found if all(map(fnmatch.fnmatchcase, (one.path, one.name), key))] for key in REASONS
    }
    excused = {one for unused in needed.values() for one in unused}
    problems = [f"{one.path}:{one.line}: nothing uses the {one.kind} {one.name}" for one in found if one not in excused]
    problems += [f"nothing needs the reason of {path}: {name}" for (path, name), unused in needed.items() if not unused]
    print("".join(f"{problem}\n" for problem in problems), end="")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
