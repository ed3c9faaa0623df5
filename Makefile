# The main targets are `make demo` and `make test`. They need only Python 3.11 to 3.13 and make.
# PYTHON selects the interpreter: `PYTHON=python3.12 make test`.

PYTHON ?= python3
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VENV := .venv-$(VERSION)
BIN := $(VENV)/bin
WORKERS ?= 2
# Of the many cases of a test in `make test-interop`, every fifth runs, in `make test-suites` every
# third; `make test-nightly` runs all.
EVERY ?= 5
# Python compiles what is imported; pip would compile all packages.
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# Runs tests; ARGS may select none of them (status 5).
pytest = $(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile $(1) $(ARGS) || [ $$? = 5 ]
NATIVE = $(wildcard jaxenvs/bridge/native/*.c jaxenvs/bridge/native/*.cc jaxenvs/bridge/native/*.h \
    jaxenvs/bridge/native/*/*.h)
MAIN = not interop and not slow

# Tests start many processes, which need not compile our modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-interop test-suites _test-suites test-nightly mutations \
    release-check lint format docs pictures tables notebooks pytest _pytest oldest _oldest bench bench-gym bench-host bench-training clean

help:
	@echo 'make demo            train PPO on CartPole-v1; write a curve and an animation to demo/'
	@echo 'make test            run the linters, the documentation, and the main tests'
	@echo 'make test-interop    run the notebooks, the slow tests, and those with other libraries (several GB)'
	@echo 'make test-suites     run the tests with other JAX libraries, in an environment of their own'
	@echo 'make test-nightly    run all cases of the two above, which otherwise run some (hours)'
	@echo 'make mutations       plant faults and report which of them the tests catch'
	@echo 'make release-check   build the files of a release and run the README with them'
	@echo 'make lint            run ruff, the type checker, and the import linter'
	@echo 'make format          format the code and apply safe fixes'
	@echo 'make pytest          run the main tests only; ARGS="-k cartpole" selects some'
	@echo 'make oldest          run the main tests with the oldest supported JAX'
	@echo 'make notebooks       run the notebooks'
	@echo 'make docs            build the documentation into site/'
	@echo 'make pictures        draw the pictures that the documentation shows of environments'
	@echo 'make tables          write the tables of benchmark figures in the documentation'
	@echo 'make bench           measure rollouts, with gymnax'
	@echo 'make bench-gym       measure the NumPy interface, with EnvPool and Gymnasium'
	@echo 'make bench-host      measure pools of hosted environments, with other libraries'
	@echo 'make bench-training  measure whole training runs, with PureJaxRL, rejax, Stable-Baselines3'
	@echo 'make clean           remove virtual environments, caches, and outputs'

# Each interpreter has its own virtual environment, which is updated when pyproject.toml changes, or
# what an installation compiles.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	    { echo 'jaxenvs needs Python 3.11 to 3.13: PYTHON=python3.12 make ...' >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	    { rm -rf $(VENV); echo "$(PYTHON) could not make a virtual environment;" \
	    "on Debian or Ubuntu, try: apt install python$(VERSION)-venv" >&2; exit 1; }

$(VENV)/.with-%: pyproject.toml hatch_build.py $(NATIVE) | $(BIN)/python
	@echo 'installing jaxenvs[$*] into $(VENV) ...'
	@$(PIP) --editable '.[$*]'
	@touch $@

demo: $(VENV)/.with-all
	@$(BIN)/python -m jaxenvs.cli.demo --output demo

test: $(VENV)/.with-dev
	@$(MAKE) --no-print-directory --jobs 2 lint docs
	@$(MAKE) --no-print-directory _pytest

lint: $(VENV)/.with-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.with-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/.with-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Takes minutes. Existing pictures are kept; delete one to draw it again.
pictures: $(VENV)/.with-dev
	$(BIN)/python docs/environment_pages.py

tables: $(VENV)/.with-dev
	$(BIN)/python -m benchmarks.tables

notebooks: $(VENV)/.with-dev
	$(call pytest,tests/examples/test_notebooks.py)

# Tests that need optimized programs run in a call of their own.
pytest: $(VENV)/.with-dev
	@$(MAKE) --no-print-directory _pytest

_pytest:
	$(call pytest,-m '$(MAIN)')
	$(call pytest,-m '$(MAIN) and optimized' --optimized)

test-interop: $(VENV)/.with-interop
	$(call pytest,--every $(EVERY) --ignore tests/suites -m 'interop or slow')
	$(call pytest,--every $(EVERY) --ignore tests/suites -m 'interop or slow or bitwise' --optimized)

test-suites:
	@$(MAKE) --no-print-directory VENV=.venv-suites-$(VERSION) _test-suites

test-nightly:
	@$(MAKE) --no-print-directory test-suites EVERY=1
	@$(MAKE) --no-print-directory test-interop EVERY=1

mutations: $(VENV)/.with-dev
	$(BIN)/python -m tests.mutations

# With all of python3.11, python3.12, and python3.13 that there are.
release-check:
	$(PYTHON) tests/release.py

# Every third case is at least one of each library.
_test-suites: EVERY = 3
_test-suites: $(VENV)/.with-suites-tests
	$(BIN)/pytest --numprocesses $(WORKERS) --every $(EVERY) -m interop tests/suites $(ARGS)

# This XLA prints an error whenever it loads a program from the cache, which some tests would see.
oldest:
	@test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	@$(MAKE) --no-print-directory BIN=.venv-oldest/bin _oldest

_oldest:
	@$(PIP) --editable '.[dev]' 'jax==0.8.2' 'jaxlib==0.8.2'
	TF_CPP_MIN_LOG_LEVEL=3 $(MAKE) --no-print-directory _pytest

bench: $(VENV)/.with-bench
	$(BIN)/python -m benchmarks.rollout

bench-gym: $(VENV)/.with-bench
	$(BIN)/python -m benchmarks.gym_api

bench-host: $(VENV)/.with-bench
	$(BIN)/python -m benchmarks.host_bridge

bench-training: $(VENV)/.with-bench
	$(BIN)/python -m benchmarks.training
	$(BIN)/python -m benchmarks.time_to_solve
	$(BIN)/python -m benchmarks.scaling

clean:
	rm -rf .venv-* .cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache site dist demo \
	    docs/assets/environments
