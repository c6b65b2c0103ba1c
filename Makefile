# Bertine. `make` alone shows what there is.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
# More words for pip, for example an index with another build of PyTorch:
#   make setup PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
PIP_ARGS ?=
OUT    ?= bertine-demo

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-deep check docs format wheel bench clean distclean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) \
	  | awk 'BEGIN {FS = ":.*## "} {printf "  make %-10s %s\n", $$1, $$2}'

setup: $(STAMP) ## Create .venv and install Bertine and its development tools in it

# Done once, and again whenever a dependency or a pinned version changes.
$(STAMP): pyproject.toml constraints.txt src/bertine/fast/int8.c tools/build_hook.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Bertine needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) \
	  || { rm -rf $(VENV); echo "no venv module; on Debian: apt install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[dev]'
	$(BIN)/python -m compileall -q src
	@touch $@

demo: setup ## See what pre-training is worth, on bundled texts (about 5 minutes)
	$(BIN)/bertine demo --out $(OUT)

# Compiled modules are kept, whatever the environment says: a hundred processes import them.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses logical --maxprocesses 8 --dist worksteal

test: setup ## Run the fast tests
	$(PYTEST) -m "not slow" $(ARGS)

test-all: setup ## Run all tests but those for use by hand
	$(PYTEST) -m "not deep" $(ARGS)

test-deep: setup ## Run what takes long: tables of papers, 240 kills, 20,000 fuzzed inputs and 5,000 odd ones
	$(PYTEST) -m deep $(ARGS)
	PYTHONPATH=src:tests $(BIN)/python -m mistakes.fuzz --cases 20000 --seed 0

check: setup ## Lint, formatting and types
	$(BIN)/python tools/build_hook.py
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/size.py

docs: $(DOCS_STAMP) ## Build the documentation in build/docs
	$(BIN)/sphinx-build -W --keep-going --quiet -b html docs build/docs
	@echo "build/docs/index.html"

# What only the documentation needs; after the development tools, which it shares pins with.
$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[docs]'
	@touch $@

format: setup ## Mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: setup ## Build dist/bertine-*.whl
	rm -f dist/bertine-*.whl
	$(BIN)/python -m build --wheel
	@ls -l dist/bertine-*.whl

bench: setup ## Measure against transformers: a pre-training step; with DATA=FOLDER fine-tuning
	$(BIN)/python benchmarks/pretrain.py
ifdef DATA
	$(BIN)/python benchmarks/finetune.py --data $(DATA)
endif

clean: ## Remove what builds, tests and the demo leave
	rm -rf build dist bertine-demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks tools docs -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## Remove .venv as well
	rm -rf $(VENV)
