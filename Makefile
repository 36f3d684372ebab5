# make demo   set up, train a small model on the bundled books, show what it learnt
# make test   set up, run the tests
# make lint   set up, ruff and mypy

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

# Build wheel and sdist, install each into a fresh environment away from the source tree, and use it there.
package: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt build
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	for file in dist/*.whl dist/*.tar.gz; do \
		folder=$$(mktemp -d) && cp constraints.txt $$file $$folder && \
		$(PYTHON) -m venv $$folder/venv && \
		(cd $$folder && venv/bin/python -m pip install --quiet --constraint constraints.txt torch numpy && \
		venv/bin/python -m pip install --quiet --constraint constraints.txt ./$$(basename $$file) && \
		venv/bin/mv-st --version && venv/bin/mv-st demo --minutes 0.1 --output model && \
		echo "The sea was calm." | venv/bin/mv-st similar model - --query "quiet water") || exit 1; \
		rm -rf $$folder; \
	done

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
