# `make demo` and `make test` each work alone on a fresh machine with Python >= 3.10. Another Python: make PYTHON=python3.12

SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help setup setup-dev demo test test-long test-localstack test-all lint audit wheel docs pages format clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := PYTHONUNBUFFERED=1 $(BIN)/pip install --disable-pip-version-check

TORCH := $(shell sed -n 's/.*"\(torch==[^"]*\)".*/\1/p' pyproject.toml | head -n 1)

help:
	@echo "make demo       set up, then train the default graph: a minute or two, no account, no configuration"
	@echo "make test       set up for development, then lint, type-check and test: minutes"
	@echo "make test-all   that, then test-long (whole runs that are killed and resumed, baselines, Ray, the wheel), test-localstack"
	@echo "                (functions, training, deployment against LocalStack, without Docker or an account) and audit"
	@echo "make setup      what training needs, in $(VENV)"
	@echo "make setup-dev  all that tests and development need, in $(VENV)"
	@echo "make lint       ruff (bandit's checks among it) and mypy alone;  make format: let ruff rewrite"
	@echo "make wheel      dist/: the sdist, and a wheel for each architecture (x86_64, aarch64) that serves every Python"
	@echo "make docs       build/site: the documentation as a site; links and anchors are checked"
	@echo "make pages      docs/settings.md and siafu/__init__.pyi, made from the settings"
	@echo "make audit      known vulnerabilities of what is installed, where the advisories can be reached"
	@echo "make clean      remove $(VENV) and every cache; runs/ stays"

setup: $(VENV)/.setup
setup-dev: $(VENV)/.setup-dev

demo: $(VENV)/.setup
	$(BIN)/siafu train digits --parts 2 --epochs 100 --backend lambda

lint: $(VENV)/.setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Known vulnerabilities of what is installed; where pip-audit cannot reach its data, only a word that nothing was checked.
AUDITED := $(VENV)/audit.log
audit: $(VENV)/.setup-dev
	@$(BIN)/pip-audit --local --skip-editable --progress-spinner off --timeout 15 > $(AUDITED) 2>&1; code=$$?; \
	  if [ $$code -ne 0 ] && grep -qE 'Max retries exceeded|ConnectionError|Timeout' $(AUDITED) && ! grep -q '^Found ' $(AUDITED); \
	  then echo "make audit: the advisories cannot be reached: nothing was checked"; \
	  else grep -v 'could not be audited' $(AUDITED); left=$$(grep -c 'could not be audited' $(AUDITED)); \
	    [ $$left -eq 0 ] || echo "make audit: $$left packages are not known to the index that can be reached: they were not checked"; \
	    exit $$code; fi

# A Python without assert checks nothing: pytest refuses to begin so (tests/surroundings.py).
unexport PYTHONOPTIMIZE

# A file's tests on one worker: what they share is made once.
PYTEST := $(BIN)/pytest -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder
test: lint
	$(PYTEST)

test-long: $(VENV)/.setup-dev
	$(PYTEST) -m 'long and not slow and not aws and not gpu'

# One after the other: each starts processes on all cores.
test-all:
	$(MAKE) test
	$(MAKE) test-long
	$(MAKE) test-localstack
	$(MAKE) audit

# LOCALSTACK_ENDPOINT=http://localhost:4566: the same tests against a LocalStack that is there already, with Docker.
test-localstack: $(VENV)/.setup-dev
	$(BIN)/python -m infra.localstack install
	$(BIN)/pytest tests/localstack -m aws

wheel: $(VENV)/.setup-dev
	$(BIN)/python -m infra.distributions

docs: $(VENV)/.setup-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site: python3 -m http.server --directory build/site   shows it at http://localhost:8000"

# What follows from the settings: siafu.train's parameters as editors read them, and the page of all settings.
pages: $(VENV)/.setup-dev
	$(BIN)/python -m website.stub > siafu/__init__.pyi
	$(BIN)/python -m website.settings_page > docs/settings.md

format: $(VENV)/.setup-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info siafu/kernels/_native.so .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- .venv: a stamp is as new as what it was made from: pyproject.toml, and what setup.py compiles ---------------------

BUILT_FROM := pyproject.toml setup.py siafu/kernels/build.py $(wildcard siafu/kernels/src/*)
# Whether a C++ compiler was found: without one, all works, but slowly.
KERNEL := $(BIN)/python -c 'from run_coordinator.doctor import compiled_kernels as k; print(f"  {k().what}: {k().found}")'

# pip says nothing for a minute (-q) or far too much (-v): of its output, each step as it begins, and what is said of the
# kernels. All of it is in $(VENV)/pip.log; a failure shows the end of that.
# sed -u, because awk may wait for 4 KB of input.
SHOW := sed -u -n -E -e '/\.metadata/d' -e 's/^ *(Downloading|Using cached|siafu:) /  \1 /p' \
             -e 's/.*Installing build dependencies: started/  preparing the build/p' \
             -e 's/.*Preparing editable metadata.*: started/  finding packages/p' \
             -e 's/^Installing collected.*/  installing/p'
# Bytecode is made of what is imported, then: of all of SciPy and scikit-learn it would take half of pip's time.
# The kernels are compiled meanwhile: pip's own build leaves them out. A venv has its pip last. $(1): what is installed;
# $(2): commands before it.
INSTALL = mkdir -p $(VENV); set -o pipefail; { \
	  $(HOST) -I siafu/kernels/build.py & trap "kill $$! 2> /dev/null" EXIT; \
	  { [ -x $(BIN)/pip ] || $(HOST) -m venv $(VENV); } && { $(2) $(PIP) -q $(BUILD_NEEDS); } && \
	  SIAFU_LIBRARY=none $(PIP) -v --no-compile --no-build-isolation -e $(1) && wait; \
	} 2>&1 | tee $(VENV)/pip.log | $(SHOW) || { tail -n 40 $(VENV)/pip.log >&2; exit 1; }
BUILD_NEEDS := $(shell sed -n 's/^requires = \[\(.*\)\]/\1/p' pyproject.toml | tr -d ',')
HOST = $(if $(wildcard $(BIN)/pip),$(BIN)/python,$(PYTHON))

define PYTHON_IS_THERE
@command -v $(HOST) > /dev/null || { echo "make: $(HOST) is not installed; siafu needs Python 3.10 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
@$(HOST) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
  echo "make: $(HOST) is $$($(HOST) --version 2>&1); siafu needs Python 3.10 or newer: make PYTHON=python3.12" >&2; exit 1; }
endef

$(VENV)/.setup: $(BUILT_FROM)
	$(PYTHON_IS_THERE)
	@echo "installing siafu into $(VENV)"
	@$(call INSTALL,.)
	@$(KERNEL)
	@touch $@

# The tests compare with torch. Its CPU build spares 3 GB of CUDA; uv knows where that is.
TORCH_FOR_CPUS = $(PIP) -q uv && $(BIN)/uv pip install -q --python $(BIN)/python --torch-backend cpu --no-deps $(TORCH) 2> /dev/null \
	  || echo "siafu: uv finds no torch for CPUs here: pip chooses one, perhaps with CUDA";
$(VENV)/.setup-dev: $(BUILT_FROM)
	$(PYTHON_IS_THERE)
	@echo "installing siafu and its development tools into $(VENV)"
	@export SIAFU_ISAS=all; $(call INSTALL,'.[dev]',$(TORCH_FOR_CPUS))
	@$(KERNEL)
	@touch $@ $(VENV)/.setup
