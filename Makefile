# Set-up, checks and measurements, one command each. `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.set-up
# Passed to `pip install`, for example another index or a folder of wheels.
PIP_ARGS ?=
# `make acceptance ONLY=demo`, `make fault ONLY=worker.before_finish`
ONLY ?=
# `make fault SERVER=redis7 QUICK=1`
SERVER ?= valkey9
QUICK ?=
# `make test TESTS='tests/unit -k settings'`
TESTS ?=
# Tests wait more than they compute: three in parallel keep two cores busy.
WORKERS ?= 3
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadfile
# `make sim SEEDS=100 FIRST=1`; `make sim SEED=1234` prints what happens there.
SEEDS ?= 2000
FIRST ?= 1
SEED ?=
# How many texts the demo embeds; `all` for all of them. Empty: the demo's default.
TEXTS ?=
export TEXTS

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-redis7 doc-commands check format docs fault fault-all \
  acceptance mutants sim bench-floor clean

help: ## Show this help
	@awk 'BEGIN { FS = ":.*## " } /^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=$(PYTHON)  the interpreter (3.11 or newer) that the environment is made with"
	@echo "  PIP_ARGS=...    passed on to pip, e.g. PIP_ARGS='--extra-index-url <the CPU index of PyTorch>'"

setup: $(STAMP) ## Create .venv and install everything into it

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "batchfleet needs Python 3.11 or newer; '$(PYTHON)' was not found (name one: make PYTHON=python3.11)." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "batchfleet needs Python 3.11 or newer; '$(PYTHON)' is older (name one: make PYTHON=python3.11)." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "batchfleet needs Python's venv module; '$(PYTHON)' comes without it (Debian: apt-get install python3-venv)." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet $(PIP_ARGS) -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

demo: setup ## Serve a real model and embed real texts; TEXTS=all for all of them
	$(BIN)/batchfleet models import minilm
	$(BIN)/batchfleet demo

test: setup ## Run the tests; TESTS=... selects some, WORKERS=... runs them in parallel
	$(PYTEST) -m "not slow" --ignore=tests/tidy --ignore=tests/documents $(TESTS)

test-slow: setup doc-commands ## Run the tests that take minutes: recovery, outages, environments, documents
	$(PYTEST) -m slow --ignore=tests/tidy --ignore=tests/documents $(TESTS)

test-redis7: setup ## Run the tests of scripts and server errors on redis-server from the PATH
	$(PYTEST) -k redis7 tests/contract tests/integration/server/test_server_errors.py

doc-commands: setup ## Run the commands and programs of README and docs/
	$(PYTEST) tests/documents

check: setup ## Check lint, format, types, layers and style rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/tidy

format: setup ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup ## Regenerate the generated documents
	$(BIN)/python -m tests.documents.drawing docs

fault: setup ## Break a real fleet on purpose; SERVER=redis7|valkey9, ONLY=run, QUICK=1 for a part
	$(BIN)/python -m tests.fault --server $(SERVER) $(if $(QUICK),--quick) $(ONLY)

fault-all: setup ## Run all faults of `make fault` on both servers
	@status=0; for server in valkey9 redis7; do \
	  $(BIN)/python -m tests.fault --server $$server || status=1; done; exit $$status

acceptance: setup ## Measure every documented figure; ONLY=name for some of them, QUICK=1 to rehearse
	$(BIN)/python -m tests.acceptance $(if $(QUICK),--quick) $(ONLY)

mutants: setup ## Break the code on purpose; the tests must notice; ONLY=word selects faults
	$(BIN)/python -m tests.mutants --workers $(WORKERS) $(ONLY)

sim: setup ## Simulate fleets on virtual time; SEEDS=count, FIRST=seed, or SEED=one for its trace
	$(BIN)/python -m tests.simulation $(if $(SEED),--replay $(SEED),--first $(FIRST) --count $(SEEDS))

bench-floor: setup ## Measure throughput and latency against a raw queue on the same server
	$(BIN)/python -m benchmarks.floor

clean: ## Remove the environment and all files of the tools
	rm -rf $(VENV) build dist *.egg-info namespace/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .cache
