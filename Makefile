# Every target makes what it needs. PYTHON=python3.12 make ... takes another Python.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# STORE=s3: a table in an object store, whose locks lie there as well if no others are named.
STORE ?=
LOCK ?= $(if $(STORE),storage,filesystem)
export TEST_LIMIT ?= 45m
# Pythons and PySparks beside those of $(VENV): the oldest of both, those between, and the newest; and 3.14 where it is there.
VERSIONS ?= python3.10:4.0 python3.12:4.1 python3.11:4.2 python3.13:4.3$(if $(shell command -v python3.14), python3.14:4.3)
SEEDS ?= 300
LONG_SEEDS ?= 3000
# Most lock tests wait for leases to end, so there are more workers than cores (in `make test` four, since nothing runs
# beside it; in the long stage five, beside which seeds take only what is left). Each of them gets whole files, and has a
# Spark session of its own from its first test of Spark on.
PYTEST = LAKELATCH_TEST_SERVERS=local LAKELATCH_FORBID_SKIPS=1 \
	$(BIN)/python .ci/run-tests $(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder
export PYSPARK_PYTHON := $(abspath $(BIN)/python)
# Or each process compiles the project again, and each worker of pytest rewrites all assertions, where the machine forbids
# what compiled code is kept in.
export PYTHONDONTWRITEBYTECODE :=
# What Spark's classes are archived in: a session starts with half the processor time. Where Java makes none, it starts
# as always.
CLASSES := $(VENV)/spark-classes.jsa

# Where pytest keeps what assertions become. In a new checkout one process rewrites them, before each worker would.
REWRITTEN := tests/__pycache__

.PHONY: help test test-long long-tests seeds test-java test-versions test-containers servers demo try docs bench evidence dist audit lint format venv java clean

help:
	@echo "make demo    several Spark jobs write one table of real flights at once (DEMO_ARGS='--mode occ')"
	@echo "make demo DEMO_ARGS='--writers 32'   many small writers without Spark, and the slots of the log that they share"
	@echo "make demo DEMO_ARGS='--tables 3'     flights and their aggregates in one transaction, beside writers that are killed"
	@echo "make demo LOCK=redis   the same with that lock provider, and a server of it started for the time being"
	@echo "make demo STORE=s3     the same with the table in an object store, which is started for the time being"
	@echo "make try     every lock service, a store, writers on a table of each, the page, Prometheus; with containers: docker compose up --build"
	@echo "make test    what must hold: lint, types, simulation, tests (TEST_ARGS=tests/locks for some of them)"
	@echo "make test-long   what takes longer: 3,000 seeds of this tree, tests marked long, those marked stores with their tables in SeaweedFS;"
	@echo "                 containers if LAKELATCH_TEST_CONTAINERS=1"
	@echo "make test-java   both ways beside Java Hudi, which it installs; LAKELATCH_JAVA_HUDI=folder has it elsewhere"
	@echo "make test-versions   some tests of Spark with other Pythons and PySparks: VERSIONS='python3.10:4.0 ...'"
	@echo "make test-containers   the lock providers with their servers in containers (root, or a Docker engine)"
	@echo "make docs    the site, in build/site: fails where a link, an anchor or a page leads nowhere"
	@echo "make bench   the figures of bench/README.md (BENCH=name for one of them)"
	@echo "make dist    the sdist, the wheel and a bill of materials in dist/, checked, and the wheel tried alone"
	@echo "make audit   known vulnerabilities of all that the extras bring (AUDIT_ARGS for pip-audit; asks a service)"
	@echo "make evidence   docs/evidence.md anew from the records in docs/evidence"
	@echo "make lint    ruff and mypy only"
	@echo "make format  ruff's formatter and its safe fixes"
	@echo "make venv    the environment in $(VENV) only"
	@echo "make clean   removes the environment and what runs leave behind"

venv: $(STAMP)

$(STAMP): pyproject.toml
	@.ci/make-environment "$(PYTHON)" "$(VENV)"
	@touch $@

java:
	@.ci/check-java

$(CLASSES): $(STAMP)
	-$(BIN)/python tests/support/spark_java.py

$(REWRITTEN): | $(STAMP)
	@said=$$($(BIN)/pytest --collect-only -qq) || { echo "$$said"; exit 1; }

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	.ci/check-types $(VENV)

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# mypy and Java fill one core, and the seeds, which take any number, what is left of both: those after the first hundred,
# which are among the tests. The tests wait half of their time, for leases, disks and servers, so four run at once on two cores.
test: java servers
	$(if $(TEST_ARGS),,.ci/beside "$(BIN)/python tests/simulation/simulate.py --seeds 100:$(SEEDS)") \
		make --no-print-directory lint $(CLASSES) $(if $(TEST_ARGS),,$(REWRITTEN))
	$(PYTEST) -n 4 -m "not long and not java" -- $(TEST_ARGS)

# The seeds are simulated meanwhile: tests that wait for leases, disks and servers leave a good part of the cores.
test-long: java servers
	.ci/beside "make --no-print-directory seeds" make --no-print-directory long-tests
	@if [ -n "$(LAKELATCH_TEST_CONTAINERS)" ]; then $(MAKE) --no-print-directory test-containers; fi

seeds: $(STAMP)
	$(BIN)/python tests/simulation/simulate.py --of-tree $(LONG_SEEDS)

# These have their folders on a disk, which those of other stages do not wait for; so there is one more of them at once.
long-tests: $(CLASSES)
	TEST_FOLDERS=disk $(PYTEST) -n 5 -m "long and not java" -- $(TEST_ARGS)
	$(if $(TEST_ARGS),,LAKELATCH_TEST_STORE=seaweedfs $(PYTEST) -m stores -- tests/interop tests/spark)

# A worker for each of two cores: it has two Spark sessions, ours and Java Hudi's, of which one waits for the other. Some
# tests start a third for themselves.
test-java: java servers $(CLASSES)
	@.ci/install-java-hudi
	$(PYTEST) -n 2 -m java -- $(or $(TEST_ARGS),tests/java)

# Some tests of Spark with other versions, each in an environment of its own.
test-versions: java
	for version in $(VERSIONS); do .ci/test-versions $${version/:/ } $(TEST_ARGS) || exit 1; done

# The lock providers once more, with their servers in containers: of the engine that answers, or of one of our own.
test-containers: java $(STAMP)
	.ci/test-in-containers $(VENV) tests/testing/test_servers.py tests/locks/redis/test_redis.py tests/locks/zookeeper/test_zookeeper.py \
		tests/locks/etcd/test_etcd.py tests/locks/dynamodb/test_dynamodb.py tests/locks/object_store/test_object_store.py

servers: $(STAMP)
	@.ci/install-servers $(VENV)

demo: java $(STAMP)
	$(BIN)/python -m lakelatch.testing.servers $(if $(STORE),--store $(STORE)) $(LOCK) $(BIN)/lakelatch demo $(DEMO_ARGS)

# Sphinx and its theme are asked for by nothing else, and come with the first `make docs`.
$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	$(BIN)/python docs/site/staging.py build/site-pages
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -b html build/site-pages build/site
	@echo "the site is build/site/index.html"

# What compose.yaml starts in containers, as processes of this machine.
try: servers
	$(BIN)/python docs/try/local.py $(TRY_ARGS)

bench: java $(STAMP)
	$(BIN)/python bench/run.py $(BENCH)

evidence: $(STAMP)
	$(BIN)/python .ci/evidence-page

dist: $(STAMP)
	.ci/dist $(VENV)

# Not part of `make test`: what it says depends on a service, and on the day.
audit: $(STAMP)
	.ci/audit $(VENV) $(AUDIT_ARGS)

clean:
	rm -rf $(VENV) build dist demo-out .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf spark-warehouse metastore_db derby.log bench/results.json
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
