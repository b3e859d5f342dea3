# Everything a developer runs. Each target does the set-up it needs; see docs/development.md.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

BIN := .venv/bin
READY := .venv/.slotwise-ready
LAYERS := unit contract simulation integration acceptance
# The unit tests of the core, which knows nothing of app/plugins.
CORE := $(addprefix tests/unit/,load model scheduler worker)
# Pages of docs/, or parts of them, that are made from the code; and tests that fail when a page is not what it says.
GENERATORS := $(sort $(wildcard docs/generate_*.py))
PAGES := $(sort $(wildcard tests/*/test_*_page*.py tests/*/*/test_*_page*.py tests/*/test_*diagram*.py tests/*/*/test_*diagram*.py))
BENCHMARKS := $(sort $(filter-out benchmarks/_%,$(wildcard benchmarks/*.py)))
# Further arguments: make serve ARGS='--port 9000', make unit ARGS='-k slots -x'
ARGS ?=

.PHONY: help setup java postgres promtool chromium demo serve test lint format docs bench clean long $(LAYERS)

help:
	@echo 'make demo         a year of real flights through a job that is rescaled, killed and checked'
	@echo 'make serve        a server on http://127.0.0.1:8081 (ARGS="--slots 8 --data-dir /var/lib/slotwise")'
	@echo 'make test         everything that CI runs: lint, $(LAYERS)'
	@echo 'make lint         ruff, mypy, import contracts, pages of docs/ that are made from the code'
	@echo 'make <layer>      one layer of the tests: $(LAYERS) (ARGS="-k name")'
	@echo 'make long         the tests that are left out of the layers to save time'
	@echo 'make format       let ruff rewrite the code'
	@echo 'make docs         write the parts of docs/ that are made from the code'
	@echo 'make bench        all scripts of benchmarks/, one after another'
	@echo 'make setup        the environment in .venv, and nothing else'
	@echo 'make clean        remove .venv, .uv and caches'

setup: $(READY)

$(READY): pyproject.toml uv.lock .ci/setup
	@.ci/setup

java:
	@.ci/java

postgres:
	@.ci/postgres

promtool: setup
	@.ci/promtool

chromium:
	@.ci/chromium

demo: java setup
	$(BIN)/slotwise demo $(ARGS)

serve: java setup
	$(BIN)/slotwise serve $(ARGS)

test:
	@.ci/test

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	@for script in $(GENERATORS); do echo "$(BIN)/python $$script --check"; $(BIN)/python "$$script" --check; done
	$(BIN)/pytest -q $(PAGES)

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: setup
	@for script in $(GENERATORS); do $(BIN)/python "$$script"; done

# Where app/plugins cannot be imported: the core does not need it. Status 5: ARGS selects none of these tests.
NONE_SELECTED := $(if $(strip $(ARGS)),|| [[ $$? == 5 ]])
unit: setup
	$(BIN)/python -m pytest -q -p tests.without_plugins $(CORE) $(ARGS) $(NONE_SELECTED)
	$(BIN)/pytest -q tests/unit $(addprefix --ignore=,$(CORE)) $(ARGS) $(NONE_SELECTED)

# Equal seeds give equal runs only when sets of texts have equal orders too.
simulation: export PYTHONHASHSEED = 0
simulation: setup
	$(BIN)/python -m pytest -q -p tests.without_plugins -m 'not long' tests/simulation $(ARGS)

# Which tests a run waited for, so that they do not become slow unnoticed.
contract integration acceptance: java setup
	$(BIN)/pytest -q --durations=25 -m 'not long' tests/$@ $(ARGS)

long: java setup
	$(BIN)/pytest -q --durations=25 -m long tests/simulation tests/integration tests/acceptance $(ARGS)

bench: java setup
	@for script in $(BENCHMARKS); do echo "== $$script"; $(BIN)/python "$$script" $(ARGS); done

clean:
	rm -rf .venv .uv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .schemathesis
