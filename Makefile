PYTHON ?= python3
TEST_WORKERS ?= 4
ARGS ?=

# Write bytecode even if the shell disables it: tests are collected faster.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
RUN := $(VENV)/bin/python -m
MANIFESTS := pyproject.toml $(wildcard packages/*/pyproject.toml)

.DEFAULT_GOAL := help
.PHONY: help demo example test test-long faults lint types docs bench dist-check clean

help:
	@echo "make demo    watch jobs run on a temporary MongoDB for about 20 seconds"
	@echo "make example NAME=script   run one of examples/"
	@echo "make test    run the tests; ARGS='tests/local -x' is passed to pytest"
	@echo "make test-long   run the fault campaigns, benchmarks and other long tests"
	@echo "make faults  run the fault campaigns for half an hour; ARGS='--seed 7 --seconds 60 campaign'"
	@echo "make lint    check style, format and import contracts"
	@echo "make types   check types with mypy and basedpyright"
	@echo "make docs    build the documentation site into build/site"
	@echo "make bench   measure throughput and latency"
	@echo "make dist-check   build the distributions and test them with every supported Python"
	@echo "make clean   remove .venv and all generated files"
	@echo
	@echo "Each creates .venv if needed, with PYTHON=$(PYTHON), 3.11 or newer."

demo: $(VENV)/.demo
	$(RUN) monque_core.demo $(ARGS)

example: $(VENV)/.dev
	@test -n "$(NAME)" -a -f "examples/$(NAME)/__main__.py" || { \
	  echo "choose one with make example NAME=…: $(patsubst examples/%/__main__.py,%,$(wildcard examples/*/__main__.py))" >&2; exit 2; }
	$(RUN) examples.$(NAME) $(ARGS)

test: $(VENV)/.dev
	@echo "All tests take about 8 minutes on two cores. After a failure, ARGS=--lf repeats only the failed tests."
	$(RUN) pytest -m "not long" -n $(TEST_WORKERS) --dist worksteal $(ARGS)

test-long: $(VENV)/.dev
	@echo "The long tests take several minutes."
	$(RUN) pytest -m long -n 2 --dist worksteal $(ARGS)

faults: $(VENV)/.dev
	$(RUN) tests.faults.run $(ARGS)

lint: $(VENV)/.dev
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(VENV)/bin/lint-imports

types: $(VENV)/.dev
	$(RUN) mypy packages/*/src tests examples
	$(VENV)/bin/basedpyright

# The site has its own environment, so that its dependencies do not affect the tests.
docs: build/docs-venv/.docs
	NO_MKDOCS_2_WARNING=1 build/docs-venv/bin/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

bench: $(VENV)/.dev
	$(RUN) tests.benchmarks.run $(ARGS)

dist-check: $(VENV)/.dev
	$(VENV)/bin/python .ci/dist_check.py $(ARGS)

clean:
	rm -rf $(VENV) .coverage .coverage.* htmlcov build dist packages/*/dist
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find packages tests examples $(wildcard docs) -type d -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "monque needs Python 3.11 or newer, and '$(PYTHON)' is older or missing:" \
	       "choose another, for example make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(RUN) pip install --quiet --upgrade "pip>=25.1"
	@touch $@

# The demo installs only what it needs, so that newcomers do not wait for development tools.
$(VENV)/.demo: $(VENV)/.created $(MANIFESTS)
	$(RUN) pip install --quiet --editable "packages/monque-core[demo]"
	@touch $@

$(VENV)/.dev: $(VENV)/.created $(MANIFESTS)
	$(RUN) pip install --quiet --group dev \
	  --editable "packages/monque-core[cli,demo,local,motor,testing,uvloop]" \
	  --editable "packages/monque-di[beanie,mongoengine,motor]"
	@touch $@ $(VENV)/.demo

build/docs-venv/.docs: pyproject.toml
	$(PYTHON) -m venv --clear build/docs-venv
	build/docs-venv/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	build/docs-venv/bin/python -m pip install --quiet --group docs
	@touch $@
