# All pods use this image. The image contains the launcher, the pserver, the trainer and the data job's program.
#   docker build -t REPO/paddle:mypaddle .
# In the target `data`, the entrypoint is the data job's program, for a Job without a command such as the tutorial's data job:
#   docker build -t REPO/paddle:data --target data .
# --build-arg BASE=... sets another base, which can be any Debian-like image with python3 (3.11 to 3.14), also of another CPU.
# A BASE with a digest, NAME@sha256:..., is the same in each build (docs/cluster.md). The default has the Python of CI.
# `paddle train` and `paddle pserver` use no GPU; a BASE with CUDA serves scripts of `paddle elastic` whose own library uses one
ARG BASE=python:3.11-slim-trixie
# If downloads need a CA bundle that the image must not keep, BUILD_BASE is BASE plus this bundle, and PIP_CERT is the bundle's path
ARG BUILD_BASE=${BASE}

FROM ${BUILD_BASE} AS build
ARG PIP_CERT
# The compiler compiles the inner loops in paddle_base/kernels/; only this stage has a compiler
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev python3-dev python3-venv tini \
    && rm -rf /var/lib/apt/lists/*
# pip is in a separate environment, so the environment of the image never contains pip
RUN python3 -m venv /pip && python3 -m venv --without-pip /opt/venv
COPY requirements/image.txt /src/requirements/
# pip installs only files whose digests the list has, and no package that the list lacks. Files that only the packages' tests, type
# checkers and builds against numpy need are removed. pyzmq carries control messages (paddle_base/messages/); gradients use plain sockets
RUN /pip/bin/pip --python /opt/venv/bin/python install --no-cache-dir --no-compile --only-binary :all: \
        --require-hashes --requirement /src/requirements/image.txt \
    && cd /opt/venv/lib/python3*/site-packages \
    && find . -type d -name tests -prune -exec rm -r {} + \
    && find . -type f \( -name '*.pyi' -o -name '*.a' \) -delete \
    && rm -rf numpy/f2py numpy/distutils numpy/_core/include numpy/_core/_simd.*
COPY setup.py pyproject.toml start.sh start_paddle.py /src/
COPY paddle/ /src/paddle/
COPY paddle_base/ /src/paddle_base/
COPY paddle_cluster/ /src/paddle_cluster/
COPY pserver/ /src/pserver/
COPY trainer/ /src/trainer/
COPY examples/ /src/examples/
# The files under /image get their final modes here, because a chmod in the last stage would store each file twice. A compiled
# module contains the digest of its source instead of the source's modification time, so each build makes the same bytes.
# The project is built with the setuptools of the list, because pip would download another one without a digest. Then setuptools is
# removed: a dependency of etcd3gw also needs it only for its own build
RUN /pip/bin/pip --python /opt/venv/bin/python install --no-cache-dir --no-compile --no-deps --no-index --no-build-isolation /src \
    && /pip/bin/pip --python /opt/venv/bin/python uninstall --yes setuptools \
    && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/venv/lib
# Extras of setup.py, separated by commas, such as torch, which the image also gets. Their packages have the versions of the list,
# if it names them, but no digests. pip also looks for them in PIP_EXTRA_INDEX_URL, such as PyTorch's index of builds for the CPU
ARG EXTRAS=
ARG PIP_EXTRA_INDEX_URL
COPY requirements/constraints.txt /src/requirements/
RUN if [ -n "${EXTRAS}" ]; then \
        /opt/venv/bin/python -c "import sys, importlib.metadata as found; known = found.metadata('paddle-on-kubernetes').get_all('Provides-Extra'); \
unknown = sorted({*sys.argv[1].split(',')} - {*known}); sys.exit(f'EXTRAS has {unknown}, but setup.py has only {known}' if unknown else 0)" "${EXTRAS}" \
        && /pip/bin/pip --python /opt/venv/bin/python install --no-cache-dir --only-binary :all: \
            --constraint /src/requirements/constraints.txt "paddle-on-kubernetes[${EXTRAS}]"; \
    fi
RUN mkdir -p /image/usr/bin /image/opt/paddle /image/root \
    && cp /usr/bin/tini-static /image/usr/bin/tini \
    && cp -R /src/examples /image/opt/paddle/ \
    && install -m 0755 /src/start.sh /src/start_paddle.py /image/root/ \
    && mv /opt/venv /image/opt/ \
    && chmod -R a+rX /image

FROM ${BASE} AS runtime
LABEL org.opencontainers.image.title="paddle-on-kubernetes" \
      org.opencontainers.image.description="Distributed training on Kubernetes: launcher, pserver, trainer, data job" \
      org.opencontainers.image.version="0.11.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /image/ /
ENV PATH=/opt/venv/bin:${PATH} \
    EXAMPLES_DIR=/opt/paddle/examples \
    WORK_DIR=/work \
    REQUIRE_VOLUME=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# Every uid may enter /root, because the tutorial's command is /root/start.sh. The imports check that the wheels work on the base
# image and that the inner loops are compiled
RUN chmod 0755 /root && mkdir -m 1777 /work && python -c "import cramjam, etcd3gw, google.protobuf, paddle_base.kernels._compiled, numpy, prometheus_client, requests, zmq; assert zmq.has('curve')"
USER 1000
# the tutorial's command "bin/bash" is relative
WORKDIR /
STOPSIGNAL SIGTERM

# This target replaces the tutorial's data image, which made the directory tree of quick_start from an archive without a digest. If
# no archive is set, as in the tutorial's YAML, this image makes the same tree from synthetic text. Set the archive (DATA_URL) and
# its digest (DATA_SHA256) in the Job's env, or at the build.
FROM runtime AS data
ARG DATA_SOURCE=synthetic
ARG DATA_URL=
ARG DATA_SHA256=
ENV DATA_SOURCE=${DATA_SOURCE} \
    DATA_URL=${DATA_URL} \
    DATA_SHA256=${DATA_SHA256}
ENTRYPOINT ["tini", "--", "paddle", "prepare"]

# `docker build .` makes the last stage
FROM runtime AS train
ENTRYPOINT ["tini", "--", "/root/start.sh"]
