"""No data becomes code: every place of the product that could do that is listed here with its reason (issue E 2)."""

import ast
import re
from pathlib import Path

from house import ROOMS

ROOT = Path(__file__).parents[3]
PRODUCT = [
    ROOT / "start_paddle.py",
    ROOT / "setup.py",
    *(path for package in (*ROOMS, "proto") for path in sorted((ROOT / package).rglob("*.py"))),
]
# a module whose use is such a place: its functions that only write are none
MODULES = {
    "pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "dbm", "copyreg", "code",
    "codeop", "runpy", "importlib", "imp", "zipimport", "pty", "ctypes", "cffi", "xmlrpc", "jsonpickle",
}  # fmt: skip
HARMLESS = {
    "pickle.dumps", "pickle.dump", "pickle.UnpicklingError", "pickle.__all__", "importlib.metadata",
    "importlib.resources", "importlib.machinery", "importlib.invalidate_caches",
}  # fmt: skip
CALLS = {"eval", "exec", "compile", "__import__", "execfile", "input"}
METHODS = {("os", "system"), ("os", "popen"), ("subprocess", "getoutput"), ("subprocess", "getstatusoutput")}

OWN_SCRIPT = "code of the user's own config script or provider, which training is made of"
OURS = "imports a module of ours or a library by a name that stands in the code"
ALLOWED = {
    (
        "paddle_cluster/elastic/launching/function.py",
        "importlib.import_module",
    ): "the user's function that a worker runs: the driver, which has the job's secret, names it",
    (
        "paddle_cluster/elastic/discovery.py",
        "shell=",
    ): "runs the host discovery script that the user's command line names",
    (
        "paddle_cluster/elastic/process/objects.py",
        "pickle.loads",
    ): "only with unsafe_pickle=True, what a rank has signed",
    ("trainer/config/scripts/parse.py", "exec"): f"runs the config script that the user names: {OWN_SCRIPT}",
    (
        "trainer/config/scripts/parse.py",
        "importlib.import_module",
    ): "extension_module_name of --config_args: the user's words",
    ("trainer/config/scripts/python2.py", "compile"): f"compiles what is run there: {OWN_SCRIPT}",
    ("trainer/config/scripts/python2.py", "pickle.load"): f"the cPickle that scripts of Python 2 import: {OWN_SCRIPT}",
    ("trainer/config/scripts/python2.py", "pickle.loads"): f"the cPickle that scripts of Python 2 import: {OWN_SCRIPT}",
    ("trainer/data/loading.py", "importlib.import_module"): f"the provider, which foreign.py has checked: {OWN_SCRIPT}",
    (
        "trainer/data/provider2.py",
        "pickle.loads",
    ): "only what this process pickled: the config script's args, or the plain values of a model file",
    ("trainer/data/plain_pickle.py", "pickle._Unpickler"): "reduced to the instructions that build plain values",
    ("trainer/data/plain_pickle.py", "pickle.NEWOBJ"): "the number of an instruction that makes a dict",
    (
        "paddle_cluster/localcluster/__init__.py",
        "importlib.import_module",
    ): "modules of this package, whose names stand in it",
    ("paddle_base/runtime/processor/blas.py", "ctypes.CDLL"): "a library of products that this process has loaded",
    ("paddle_cluster/localcluster/pods/pause.py", "ctypes.CDLL"): "the C library of this process, for prctl",
    ("paddle/command.py", "importlib.import_module"): OURS,
    ("paddle/completion/tables.py", "importlib.import_module"): OURS,
    ("paddle/fork_server.py", "importlib.import_module"): OURS,
    **{
        (file, f"ctypes.{name}"): "the C library of this process, for prctl and sbrk"
        for file, names in (
            ("paddle/process_title.py", "Array CDLL addressof byref c_char c_ssize_t c_ulong c_void_p"),
            ("paddle/process_title.py", "create_string_buffer get_errno"),
            ("paddle_cluster/launcher/programs/fork_client.py", "CDLL"),
        )
        for name in names.split()
    },
    ("paddle/doctor/packages.py", "importlib.import_module"): OURS,
    ("paddle/doctor/probing.py", "importlib.import_module"): OURS,
    ("trainer/export/program.py", "importlib.import_module"): OURS,
    ("trainer/export/onnx/registry.py", "importlib.import_module"): OURS,
    ("trainer/layers/__init__.py", "importlib.import_module"): OURS,
    ("paddle/trainer_config_helpers/__init__.py", "importlib.import_module"): f"{OURS}: a submodule of this package",
    ("paddle/v2/__init__.py", "importlib.import_module"): f"{OURS}: a submodule of this package",
    ("paddle/v2/__init__.py", "importlib.util.find_spec"): "looks whether a module of a fixed name is there",
    ("paddle/v2/dataset/common.py", "importlib.import_module"): f"{OURS}: the modules of this package",
    **{
        (f"trainer/config/scripts/python2_{part}.py", name): f"the program of `paddle run`, and its words: {OWN_SCRIPT}"
        for part, names in (
            ("syntax", "exec importlib.reload"),
            ("meaning", "eval input"),
            ("libraries", "subprocess.getoutput subprocess.getstatusoutput"),
        )
        for name in names.split()
    },
    **{
        (
            "trainer/data/plain_pickle.py",
            name,
        ): "the number of an instruction, which calls functions of this module only"
        for name in ("pickle.BUILD", "pickle.BYTEARRAY8", "pickle.REDUCE")
    },
    ("pserver/server/event_loop.py", "importlib.import_module"): OURS,
    ("paddle_base/registry/choice.py", "importlib.import_module"): OURS,
}


def name_of(node):
    """Return `a.b.c` of an expression of names, or ""."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def is_import_of_a_constant(node):
    """Return whether this imports a module by a name that stands there."""
    called = isinstance(node, ast.Call) and name_of(node.func) == "importlib.import_module"
    return called and len(node.args) == 1 and isinstance(node.args[0], ast.Constant)


def places(text):
    """Yield what a module has that turns data into code, each by its name."""
    tree = ast.parse(text)
    inner = {child for node in ast.walk(tree) if isinstance(node, ast.Attribute) for child in [node.value]}
    inner |= {node.func for node in ast.walk(tree) if is_import_of_a_constant(node)}
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in MODULES:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from (name for name in names if not any(name.startswith(one) for one in HARMLESS))
        if isinstance(node, ast.Import):
            renamed = [alias.name for alias in node.names if alias.asname]
            yield from (name for name in renamed if name.partition(".")[0] in MODULES)
        if isinstance(node, ast.Attribute) and node not in inner:
            name = name_of(node)
            base = name.partition(".")[0]
            if base in MODULES and not any(name.startswith(one) for one in HARMLESS):
                yield name
            if tuple(name.rsplit(".", 1)) in METHODS or name.endswith("yaml.load"):
                yield name
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in CALLS:
                yield node.func.id
            for keyword in node.keywords:
                risky = keyword.arg in ("allow_pickle", "shell")
                if risky and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False):
                    yield f"{keyword.arg}="
        if isinstance(node, ast.Name) and node.id in MODULES & imported and node not in inner:
            yield node.id  # the module itself is handed on: getattr(pickle, ...)


def found():
    return {(str(path.relative_to(ROOT)), place) for path in PRODUCT for place in places(path.read_text())}


# what hands a module on: its names are looked up there
HANDED_ON = {
    ("trainer/config/scripts/python2.py", "pickle"): "the cPickle of scripts has all names of pickle",
}


def test_every_place_where_data_could_become_code_is_listed_with_its_reason():
    assert found() == ALLOWED.keys() | HANDED_ON.keys()


def test_each_such_place_is_found():
    cases = [
        ("import pickle\npickle.loads(x)", "pickle.loads"),
        ("import pickle\nclass A(pickle.Unpickler): pass", "pickle.Unpickler"),
        ("from pickle import loads", "pickle.loads"),
        ("import pickle as p", "pickle"),
        ("import pickle\nf = getattr(pickle, 'loads')", "pickle"),
        ("import marshal\nmarshal.loads(x)", "marshal.loads"),
        ("eval(x)", "eval"),
        ("__import__(x)", "__import__"),
        ("import importlib\nimportlib.import_module(x)", "importlib.import_module"),
        ("import importlib\nf = importlib.import_module", "importlib.import_module"),
        ("import numpy as np\nnp.load(f, allow_pickle=True)", "allow_pickle="),
        ("import numpy as np\nnp.load(f, allow_pickle=x)", "allow_pickle="),
        ("import subprocess\nsubprocess.run(x, shell=True)", "shell="),
        ("import os\nos.system(x)", "os.system"),
        ("import yaml\nyaml.load(x)", "yaml.load"),
    ]
    assert [(text, list(places(text))) for text, _ in cases] == [(text, [name]) for text, name in cases]


def test_harmless_ones_are_not():
    text = "import pickle\npickle.dumps(x)\nimport numpy as np\nnp.load(f, allow_pickle=False)\nre.compile(x)\n"
    text += "import importlib\nimportlib.import_module('os')\ncode = 1\nf(code)\n"
    assert list(places(text)) == []


def test_the_entrypoint_evaluates_nothing():
    text = (ROOT / "start.sh").read_text()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    assert not [line for line in lines if re.search(r"(^|[;&|(])\s*(eval|source|\.)\s|\bsh -c", line)]
