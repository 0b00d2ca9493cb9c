"""Checks the installed packages. The import of this module imports no such package."""

from __future__ import annotations

import importlib
import importlib.metadata

from paddle.doctor.findings import Diagnosis
from paddle.doctor.probing import DoctorCase
from paddle_base.runtime.errors import ConfigError

# package of PyPI -> the module that is imported
REQUIRED = {"numpy": "numpy", "protobuf": "google.protobuf", "pyzmq": "zmq", "requests": "requests"}
# extra of this project -> (packages of PyPI, the feature that needs them)
EXTRAS = {
    "etcd": ("etcd3gw", "--etcd_endpoints"),
    "export": ("onnx safetensors", "paddle export"),
    "image": ("pillow", "paddle.utils.image_util and preprocess_img"),
    "localcluster": ("pyyaml trustme", "paddle localcluster"),
    "metrics": ("prometheus-client", "/metrics of --metrics_port"),
    "parquet": ("pyarrow", "tables in Parquet and Arrow files"),
    "plot": ("matplotlib", "paddle plotcurve"),
    "python2": ("fissix", "paddle run"),
    "recordio": ("cramjam", "RecordIO files compressed by Snappy"),
    "s3": ("s3fs", "addresses of buckets, s3://"),
    "tensorboard": ("tensorboardX", "paddle tensorboard"),
    "torch": ("torch", "paddle.elastic.torch"),
}


def check_packages(case: DoctorCase) -> list[Diagnosis]:
    """Check that the required packages can be imported, and name the extras that are not installed."""
    present, broken = [], []
    for package, module in REQUIRED.items():
        try:
            importlib.import_module(module)
            present.append(f"{package} {importlib.metadata.version(package)}")
        except ImportError as error:
            broken.append(f"{package} ({error})")
    if broken:
        return [
            Diagnosis(
                "packages",
                f"some packages cannot be imported: {', '.join(broken)}",
                "the programs do not start",
                f"pip install {' '.join(REQUIRED)}",
                ConfigError.exit_code,
            )
        ]
    absent = [extra for extra, (names, _) in EXTRAS.items() if not all(map(is_installed, names.split()))]
    found = [Diagnosis("packages", ", ".join(present))]
    if absent:
        found.append(
            Diagnosis(
                "extras",
                f"not installed: {', '.join(absent)}",
                f"some features do not work: {', '.join(EXTRAS[extra][1] for extra in absent)}",
                f"if a job needs one of them: pip install 'paddle-on-kubernetes[{','.join(absent)}]'",
            )
        )
    return found


def is_installed(package: str) -> bool:
    """Return whether a package of PyPI is installed."""
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
