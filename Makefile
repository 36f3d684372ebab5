# make demo      set up, train a small model on the bundled books, show what it learnt
# make test      set up, run the tests
# make lint      set up, ruff and mypy
# make package   set up, build wheel and source archive, try both in fresh environments

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo test lint format package clean

setup: $(VENV)/.installed

# torch comes first and at the pinned version: a plain `torch` may pull in gigabytes of GPU libraries.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch numpy
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: setup
	$(BIN)/mv-st demo

test: setup
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Build wheel and source archive, install each into a fresh environment away from the source tree, and use it there.
package: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt build
	rm -rf build dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python tests/check_package.py dist constraints.txt

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
