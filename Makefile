# Two commands: `make demo` and `make test`. Both need a system Python (3.11 to 3.13) and make.
# PYTHON chooses the interpreter: `PYTHON=python3.12 make test`.

PYTHON ?= python3
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VENV := .venv-$(VERSION)
BIN := $(VENV)/bin
WORKERS ?= 2

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-interop lint format docs pages notebooks pytest oldest bench \
    bench-gym bench-host bench-training clean

help:
	@echo 'make demo       train PPO on CartPole-v1; leaves a curve and an animation in demo/'
	@echo 'make test       lint, documentation, notebooks and the tests of the library itself'
	@echo 'make test-interop  the slow tests, and those with other libraries (several GB)'
	@echo 'make lint       ruff, types, direction of imports'
	@echo 'make format     rewrite the code in the house style'
	@echo 'make pytest     the tests alone; ARGS="-k cartpole" chooses'
	@echo 'make oldest     the tests with the oldest JAX that is supported'
	@echo 'make notebooks  run the notebooks from top to bottom'
	@echo 'make docs       build the documentation into site/'
	@echo 'make pages      write the generated pages: environments, tables of benchmark figures'
	@echo 'make bench      measure rollouts beside gymnax'
	@echo 'make bench-gym  measure the NumPy interface beside EnvPool and Gymnasium'
	@echo 'make bench-host measure pools of non-JAX environments beside their peers'
	@echo 'make bench-training measure whole trainings beside PureJaxRL, rejax, Stable-Baselines3'
	@echo 'make clean      remove environments, caches and outputs'

# One environment an interpreter; what is installed changes only with pyproject.toml.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	    { echo 'jaxenvs needs Python 3.11 to 3.13: PYTHON=python3.12 make ...' >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	    { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment;" \
	    "on Debian and Ubuntu: apt install python$(VERSION)-venv" >&2; exit 1; }

$(VENV)/.with-%: pyproject.toml | $(BIN)/python
	@echo 'installing jaxenvs[$*] into $(VENV) ...'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

demo: $(VENV)/.with-all
	@$(BIN)/python -m jaxenvs.cli.demo --output demo

test: lint docs notebooks pytest

lint: $(VENV)/.with-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

format: $(VENV)/.with-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/.with-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pages: $(VENV)/.with-dev
	$(BIN)/python docs/environment_pages.py
	$(BIN)/python -m benchmarks.tables

notebooks: $(VENV)/.with-dev
	$(BIN)/pytest --nbmake --quiet --numprocesses $(WORKERS) notebooks

pytest: $(VENV)/.with-dev
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile -m 'not interop and not slow' $(ARGS)

test-interop: $(VENV)/.with-interop
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --optimized \
	    -m 'interop or slow or bitwise' $(ARGS)

oldest:
	@test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	@.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check \
	    --editable '.[dev]' 'jax==0.7.0' 'jaxlib==0.7.0'
	.venv-oldest/bin/pytest --numprocesses $(WORKERS) --dist loadfile \
	    -m 'not interop and not slow' $(ARGS)

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
	rm -rf .venv-* .cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache site dist demo
