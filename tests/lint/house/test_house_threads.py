"""Every thread of the product is one that ends its program, or one whose end the page of the tables names."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/security-tables.md").read_text()
SOURCES = [
    path
    for path in ROOT.glob("[a-z]*/**/*.py")
    if path.relative_to(ROOT).parts[0] not in ("tests", "bench", "build", "examples")
]
NAME = re.compile(r'ServiceThread\([^"\n]*f?"([a-z -]+)|__init__\(self\.serve, "([a-z-]+)"')
# threads that end alone: file -> number of them, and why nobody waits for them
ALONE = {
    "paddle_cluster/elastic/collectives/group.py": (1, "its group ends, and every waiting call raises"),
    "paddle_cluster/elastic/job.py": (3, "each ends the job"),
    "paddle_cluster/elastic/launching/durable.py": (1, "it only reaps a process"),
    "paddle_cluster/elastic/membership/notifying.py": (1, "a notice that is lost comes with the next heartbeat"),
    "paddle_cluster/launcher/failures.py": (1, "it makes a report"),
    "paddle_cluster/launcher/programs/process.py": (1, "it reads the end of a log, for a bounded time"),
    "paddle_cluster/localcluster/controller.py": (1, "localcluster is a tool of one machine"),
    "paddle_cluster/localcluster/deployment.py": (1, "as above"),
    "paddle_cluster/localcluster/pods/node.py": (2, "as above"),
    "paddle/v2/reader/decorator.py": (1, "its error goes to the loop that takes the samples"),
    "paddle/doctor/probing.py": (1, "a probe, for a bounded time"),
    "pserver/server/event_loop.py": (1, "it only imports"),
    "pserver/server/handlers/background_task.py": (1, "its error goes to the trainer that waits"),
    "paddle_base/remote/tree.py": (1, "its error goes to the caller, who waits for it"),
    "paddle_base/runtime/health/service_threads.py": (1, "it ends the program"),
    "paddle_base/runtime/health/metrics.py": (1, "it only imports"),
    "paddle_base/runtime/network/front.py": (2, "it answers one request, or pages without which the program goes on"),
    "trainer/data/reader.py": (1, "its error goes to the training"),
}


def test_a_thread_ends_its_program_or_is_listed() -> None:
    found = {}
    for path in SOURCES:
        count = len(re.findall(r"\bthreading\.Thread\(", path.read_text()))
        if count:
            found[str(path.relative_to(ROOT))] = count
    assert found == {name: count for name, (count, _) in ALONE.items()}


def test_the_page_names_every_thread_that_ends_its_program() -> None:
    names = {(one or two).strip() for path in SOURCES for one, two in NAME.findall(path.read_text())}
    assert len(names) > 15
    assert {
        name.removesuffix(" of rank").removesuffix(" of") for name in names if f"`{name.split(' ')[0]}" not in PAGE
    } == set()
