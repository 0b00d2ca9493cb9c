# Everything that is done here has a target; `make help` lists them.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup
export PATH := $(CURDIR)/$(BIN):$(PATH)
# the tests start thousands of processes; without compiled modules on disk, each of them compiles the project for 0.5 s
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
# tests wait for processes and for times that pass most of the time: three for each processor of a machine that has two
WORKERS ?= 6
COUNT ?= 300
SEED ?= 1
MINUTES ?= 10
GOLDEN ?= ../shared/golden
.PHONY: chart demo-elastic e2e-elastic chaos-elastic chaos-elastic-short help setup demo demo-tasks sanitize sanitize-short test test-jobs test-newest nightly nightly-tests lint check chaos chaos-tasks chaos-tasks-short chaos-endurance chaos-short docs e2e e2e-autoscale e2e-tasks e2e-faults e2e-faults-short e2e-gpu e2e-kueue e2e-nightly e2e-observability fuzz golden golden-arm64 bench proto format clean

help:  ## list the targets
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(STAMP)  ## make .venv with the project installed in it; nothing to do when it is up to date

$(STAMP): setup.py pyproject.toml requirements/constraints.txt $(wildcard paddle_base/kernels/*.c paddle_base/kernels/*.h)
	command -v $(PYTHON) >/dev/null && $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	@echo "setup: installs the project and what its tests need into $(VENV); the first time takes some minutes"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements/constraints.txt \
		--config-settings editable_mode=compat --editable '.[test]'
	touch $@

demo: setup  ## train digits with three pods on this machine, without container or cluster
	$(BIN)/python examples/demo.py

demo-tasks: setup  ## train digits with 1 to 5 trainers that are killed, frozen and added, on this machine
	$(BIN)/python examples/demo_tasks.py

# 4 GB, for the tests of paddle.elastic.torch: TORCH=none leaves it out, and they are skipped
$(VENV)/.torch: $(STAMP)
	@echo "test: installs torch for its tests, half a minute and 4 GB; TORCH=none leaves it out"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements/constraints.txt torch
	touch $@

test: setup $(if $(filter none,$(TORCH)),,$(VENV)/.torch)  ## every test of parts and of programs; the first time it compiles etcd and versitygw and installs torch (TORCH=none: not)
	@tests/etcd/build || { echo "test: without etcd its tests are skipped"; test -z "$$ETCD_REQUIRED"; }
	@tests/s3/build || { echo "test: without an S3 server its tests are skipped"; test -z "$$ETCD_REQUIRED"; }
	TMPDIR="$$(tests/temporary-directory)" $(BIN)/pytest --numprocesses=$(WORKERS) --dist=worksteal

test-jobs: setup  ## whole jobs, and the commands of the pages, as a user runs them
	$(BIN)/pytest --numprocesses=$(WORKERS) --dist=worksteal tests/e2e

test-newest: setup  ## the unit tests with the newest Python of this machine, in .venv-newest, if it is not that of .venv
	@if [ "$$($(BIN)/python -V)" = "$$("$$(tests/newest-python)" -V)" ]; then \
		echo "test-newest: $$($(BIN)/python -V) is the newest here, and make test runs with it"; \
	else \
		$(MAKE) setup VENV=.venv-newest PYTHON="$$(tests/newest-python)" && \
		.venv-newest/bin/pytest --numprocesses=$(WORKERS) --dist=worksteal tests/unit; \
	fi

lint: setup  ## ruff, mypy, import rules, bounds of sizes, dead code, codespell, shellcheck, yamllint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/house.py
	$(BIN)/python tests/dead_code.py
	$(BIN)/codespell
	$(BIN)/shellcheck start.sh tests/etcd/build tests/s3/build tests/arm64/run .ci/run paddle/bin/* tests/chaos/pod_network.sh tests/install-go tests/install-packages tests/newest-python tests/temporary-directory \
		$(addprefix tests/kubernetes/,base-image cluster compile custom-resources/make autoscale/run helm/build install kueue/build kwok/build moosefs run) \
		$(addprefix tests/observability/,install run)
	$(BIN)/yamllint --strict k8s tests
	$(BIN)/pytest --quiet --numprocesses=2 tests/lint

e2e: setup  ## what a user does, on a real three-node Kubernetes (root; installs what it needs)
	tests/kubernetes/run

e2e-faults-short: setup  ## eight things that happen to a job on that cluster (docs/cluster-faults.md)
	tests/kubernetes/run short

e2e-faults: setup  ## the whole table of what happens to a job on that cluster, within the hour
	tests/kubernetes/run faults

e2e-tasks: setup  ## a job whose trainers come and go on that cluster: pods of each kind are deleted
	tests/kubernetes/run elastic

e2e-autoscale: setup  ## the experiment of 2017, twice, on a control plane whose 133 nodes KWOK plays (about 90 minutes)
	tests/kubernetes/autoscale/run

e2e-nightly: setup  ## what make e2e leaves for the night: wheels, and the variants of the tutorial and of the pages
	tests/kubernetes/run nightly

e2e-kueue: setup  ## a job in the queue of Kueue, whose controller it compiles
	tests/kubernetes/run kueue

e2e-gpu: setup  ## pods with GPUs: scheduler, quota and autoscaler, on nodes that KWOK plays, which it compiles
	tests/kubernetes/run gpu

e2e-observability: setup  ## the report in a real browser, the metrics in a real Prometheus (root; installs what it needs)
	tests/observability/run

check: lint test sanitize-short test-jobs golden chaos-short chaos-tasks-short e2e e2e-faults-short  ## what CI runs

nightly: COUNT = 100
nightly: SEED = $(shell date +%j)
nightly: MINUTES = 30
nightly: STRANGERS = --strangers
nightly: nightly-tests test-newest e2e-observability e2e e2e-nightly e2e-faults e2e-tasks golden-arm64 chaos chaos-tasks chaos-endurance fuzz sanitize  ## what no landing waits for (docs/testing.md); use make --keep-going nightly

nightly-tests: setup  ## the tests that make test leaves out, and every extract of a recorded run
	$(BIN)/pytest --numprocesses=$(WORKERS) --dist=worksteal -m "nightly or golden" tests/integration tests/unit tests/e2e

chaos-short: setup  ## twelve seeded faults in real jobs: all must end as if nothing had happened
	PYTHONPATH=tests $(BIN)/python -m chaos

chaos: setup  ## the same, COUNT faults of SEED, and a table (docs/testing.md)
	PYTHONPATH=tests $(BIN)/python -m chaos --count $(COUNT) --seed $(SEED) $(STRANGERS)

chaos-tasks-short: setup  ## seventeen seeded faults in jobs whose trainers or all-reduce workers come and go
	PYTHONPATH=tests $(BIN)/python -m chaos.tasks

chaos-tasks: setup  ## the same, COUNT trials of SEED, and a table (docs/testing.md)
	PYTHONPATH=tests $(BIN)/python -m chaos.tasks --count $(COUNT) --seed $(SEED) $(STRANGERS)

chaos-endurance: setup  ## 64 trainers on 4 servers for MINUTES: flat memory, no lost round
	PYTHONPATH=tests $(BIN)/python -m chaos.endurance --minutes $(MINUTES)

fuzz: setup  ## hostile messages and peers for MINUTES, with seeds that were not tried yet (docs/security.md)
	PYTHONPATH=tests $(BIN)/python -m fuzz --minutes $(MINUTES)

sanitize-short: setup  ## the tests of kernels and of the servers' messages under gcc's sanitizers of memory and undefined behaviour
	tests/sanitize short

sanitize: setup  ## the same with those of layers and servers, one turn of fuzz, and chaos-short
	tests/sanitize

golden: setup  ## every recorded run of the legacy program again (../shared/golden, else the extracts of tests/golden)
	@test -d $(GOLDEN) || echo "golden: $(GOLDEN) is not beside this repository: the extracts of tests/golden are repeated"
	if [ -d $(GOLDEN) ]; then \
		$(BIN)/python $(GOLDEN)/run_cases.py $(BIN)/paddle --jobs 2 && \
		$(BIN)/python $(GOLDEN)/run_cases.py $(BIN)/paddle --jobs 2 --cases $(GOLDEN)/layers && \
		$(BIN)/pytest --numprocesses=$(WORKERS) -m golden tests/unit/trainer/export; \
	else $(BIN)/pytest --numprocesses=$(WORKERS) --dist=worksteal -m golden; fi

golden-arm64: setup  ## two of these runs on arm64, which qemu plays, and whether their bits are equal (root; about two minutes)
	tests/arm64/run

of_torch = $(addprefix --torch ,$(filter-out none,$(TORCH)))
of_tensorflow = $(if $(TENSORFLOW),--tensorflow $(TENSORFLOW))
bench: setup  ## the timed scripts of bench/, with ratios; TORCH=PYTHON TENSORFLOW=PYTHON: against these, too
	$(BIN)/python bench/launch.py
	$(BIN)/python bench/master.py
	$(BIN)/python bench/tasks.py
	$(BIN)/python bench/autoscaler.py
	$(BIN)/python bench/recovery.py
	$(BIN)/python bench/recovery_torch.py --plain
	$(BIN)/python bench/allreduce.py $(of_torch)
	$(BIN)/python bench/lost_ranks.py
	$(BIN)/python bench/pserver.py $(of_torch)
	$(BIN)/python bench/scale.py
	$(BIN)/python bench/train.py $(of_torch) $(of_tensorflow)
	$(BIN)/python bench/nodes.py $(of_torch)
	$(BIN)/python bench/networks.py $(of_torch)
	$(BIN)/python bench/threads.py
	$(BIN)/python bench/pool.py
	$(BIN)/python bench/provider.py
	$(BIN)/python bench/v2.py
	$(BIN)/python bench/serve.py

proto: setup  ## generate the message modules again after a change of paddle_base/proto/*.proto (protoc: Debian's protobuf-compiler)
	protoc -I. --python_out=. --pyi_out=. paddle_base/proto/*.proto

docs: setup  ## write the generated lists and tables of docs/ again
	PYTHONPATH=tests $(BIN)/python -m docpages

chart: setup  ## write the templates of the Helm chart again; needs kubectl
	$(BIN)/python tests/make_chart.py

format: setup  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove what the targets made
	rm -rf .venv .venv-newest build demo demo-tasks *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# the old names of targets, for one release
demo-elastic: demo-tasks
e2e-elastic: e2e-tasks
chaos-elastic: chaos-tasks
chaos-elastic-short: chaos-tasks-short
