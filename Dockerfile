# The image of every pod: launcher, pserver, trainer and the data job's program.
#   docker build -t REPO/paddle:mypaddle .
# The same with the data job's program as entrypoint, for a Job that names no command, as the tutorial's data job:
#   docker build -t REPO/paddle:data --target data .
# Any Debian-like base with python3 (3.11 or newer) serves: --build-arg BASE=...; for GPUs or another CPU, another BASE, no other file.
ARG BASE=python:3.11-slim-bookworm
# where downloads need a CA bundle that the image must not keep: BASE and that bundle, and --build-arg PIP_CERT=its path
ARG BUILD_BASE=${BASE}

FROM ${BUILD_BASE} AS build
ARG PIP_CERT
# the compiler makes the hot loops of kernels/; it stays in this stage
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev python3-dev python3-venv tini \
    && rm -rf /var/lib/apt/lists/*
# pip lives in an environment of its own, so that the one which is shipped never had it
# of the packages pyzmq is the control plane (messages/); gradients travel over plain sockets. setuptools comes with a package of
# etcd3gw's, which needs it to be built alone
RUN python3 -m venv /pip && python3 -m venv --without-pip /opt/venv
COPY constraints.txt /src/
# what only tests of packages, type checkers and builds against numpy need goes away again
RUN /pip/bin/pip --python /opt/venv/bin/python install --no-cache-dir --no-compile --only-binary :all: --constraint /src/constraints.txt \
        cramjam etcd3gw numpy prometheus-client protobuf pyzmq requests \
    && /pip/bin/pip --python /opt/venv/bin/python uninstall --yes setuptools \
    && cd /opt/venv/lib/python3*/site-packages \
    && find . -type d -name tests -prune -exec rm -r {} + \
    && find . -type f \( -name '*.pyi' -o -name '*.a' \) -delete \
    && rm -rf numpy/f2py numpy/distutils numpy/_core/include numpy/_core/_simd.*
COPY setup.py pyproject.toml start.sh start_paddle.py /src/
COPY elastic/ /src/elastic/
COPY kernels/ /src/kernels/
COPY launcher/ /src/launcher/
COPY localcluster/ /src/localcluster/
COPY master/ /src/master/
COPY messages/ /src/messages/
COPY paddle/ /src/paddle/
COPY prepare/ /src/prepare/
COPY proto/ /src/proto/
COPY pserver/ /src/pserver/
COPY recordio/ /src/recordio/
COPY registry/ /src/registry/
COPY runtime/ /src/runtime/
COPY trainer/ /src/trainer/
COPY examples/ /src/examples/
# everything under /image with its final modes: a chmod in the last stage would store each file twice. The compiled modules name a
# digest of their source and not its time, so that another build makes the same bytes
RUN /pip/bin/pip --python /opt/venv/bin/python install --no-cache-dir --no-compile --no-deps /src \
    && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/venv/lib \
    && mkdir -p /image/usr/bin /image/opt/paddle /image/root \
    && cp /usr/bin/tini-static /image/usr/bin/tini \
    && cp -R /src/examples /image/opt/paddle/ \
    && install -m 0755 /src/start.sh /src/start_paddle.py /image/root/ \
    && mv /opt/venv /image/opt/ \
    && chmod -R a+rX /image

FROM ${BASE} AS runtime
LABEL org.opencontainers.image.title="paddle-on-kubernetes" \
      org.opencontainers.image.description="Distributed training on Kubernetes: launcher, pserver, trainer, data job" \
      org.opencontainers.image.version="0.10.1" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /image/ /
ENV PATH=/opt/venv/bin:${PATH} \
    EXAMPLES_DIR=/opt/paddle/examples \
    WORK_DIR=/work \
    REQUIRE_VOLUME=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# /root is opened for every uid because the tutorial's command is /root/start.sh; the imports prove that the base fits the wheels
# and that the hot loops are compiled
RUN chmod 0755 /root && mkdir -m 1777 /work && python -c "import cramjam, etcd3gw, google.protobuf, kernels._compiled, numpy, prometheus_client, requests, zmq; assert zmq.has('curve')"
USER 1000
# the tutorial's command "bin/bash" is relative
WORKDIR /
STOPSIGNAL SIGTERM

# The tutorial's data image. It made the tree of quick_start from an archive that it fetched without a digest; where none is named,
# as in the tutorial's YAML, this one makes the same tree of made-up text. Both can be set in the Job's env, or built in here.
FROM runtime AS data
ARG DATA_SOURCE=synthetic
ARG DATA_URL=
ARG DATA_SHA256=
ENV DATA_SOURCE=${DATA_SOURCE} \
    DATA_URL=${DATA_URL} \
    DATA_SHA256=${DATA_SHA256}
ENTRYPOINT ["tini", "--", "prepare"]

# the last stage is what `docker build .` makes
FROM runtime AS train
ENTRYPOINT ["tini", "--", "/root/start.sh"]
