# The commands of this repository. Each makes what it needs: the environment in .venv first of all.
#
#   make test              lint, types and every test; no test that should run may be skipped
#   make lint              style and types alone
#   make demo              several Spark jobs write one table (DEMO_ARGS="--mode occ" passes options)
#   make bench             every benchmark, or one with BENCH=name
#   make venv              the environment alone (PYTHON=python3.12 chooses the interpreter)
#   make clean             removes what the others made, but for the environment

PYTHON ?= python3
VENV ?= .venv
BENCH ?=
BENCH_ARGS ?=
DEMO_ARGS ?=
PYTEST_ARGS ?=

STAMP := $(VENV)/.lakelatch-installed
BIN := $(VENV)/bin

.DEFAULT_GOAL := test
.NOTPARALLEL:
.PHONY: test lint demo bench venv java clean

test: lint java
	@LAKELATCH_FORBID_SKIPS=1 $(BIN)/pytest $(PYTEST_ARGS)

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy --explicit-package-bases tests

demo: $(STAMP) java
	@$(BIN)/lakelatch demo $(DEMO_ARGS)

bench: $(STAMP) java
	@$(BIN)/python bench/run.py $(BENCH) $(BENCH_ARGS)

venv: $(STAMP)

java:
	@.ci/check-java

$(STAMP): pyproject.toml
	@.ci/make-environment "$(PYTHON)" "$(VENV)"
	@touch $@

clean:
	rm -rf build dist demo-out spark-warehouse metastore_db derby.log bench/results.json
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
