# Every target makes what it needs. PYTHON=python3.12 make ... takes another Python; DEMO_ARGS='--mode occ' is passed on.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PYSPARK_PYTHON := $(abspath $(BIN)/python)

.PHONY: help test demo bench lint format venv java clean

help:
	@echo "make demo    several Spark jobs write one table of real flights at once (DEMO_ARGS='--mode occ')"
	@echo "make test    everything that must hold: lint, types, tests"
	@echo "make bench   the figures of bench/README.md (BENCH=name for one of them)"
	@echo "make lint    ruff and mypy only"
	@echo "make format  ruff's formatter and its safe fixes"
	@echo "make clean   removes the environment and what runs leave behind"

venv: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 10) <= v <= (3, 13) else \
	  f"Python {v[0]}.{v[1]} is not supported: use 3.10 to 3.13, as in make PYTHON=python3.12")'
	@echo "making the environment in $(VENV) (once; Spark is large)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "venv is missing: on Debian or Ubuntu, apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(STAMP)

java:
	@found=$$( { "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 || true; } | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1 ); \
	if [ "$${found:-0}" -lt 17 ]; then \
	  echo "Spark needs Java 17 or newer, and $${found:+only Java $$found}$${found:-none} was found (JAVA_HOME, PATH)."; \
	  echo "  Debian, Ubuntu: apt-get install openjdk-17-jre-headless    macOS: brew install openjdk@17, then set JAVA_HOME"; \
	  exit 1; fi

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --explicit-package-bases tests bench

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
	rm -rf $(VENV) build dist demo-out .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
