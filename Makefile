# Every target makes what it needs. PYTHON=python3.12 make ... takes another Python.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PYSPARK_PYTHON := $(abspath $(BIN)/python)

.PHONY: help test demo bench lint format venv java clean

help:
	@echo "make demo    several Spark jobs write one table of real flights at once (DEMO_ARGS='--mode occ')"
	@echo "make test    everything that must hold: lint, types, tests (TEST_ARGS=tests/locks for some of them)"
	@echo "make bench   the figures of bench/README.md (BENCH=name for one of them)"
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

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	.ci/check-types $(VENV)

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: java lint
	LAKELATCH_FORBID_SKIPS=1 $(BIN)/pytest $(TEST_ARGS)

demo: java $(STAMP)
	$(BIN)/lakelatch demo $(DEMO_ARGS)

bench: java $(STAMP)
	$(BIN)/python bench/run.py $(BENCH)

clean:
	rm -rf $(VENV) build dist demo-out .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf spark-warehouse metastore_db derby.log bench/results.json
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
