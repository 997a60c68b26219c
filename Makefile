# For a newcomer: `make demo` and `make test`. Both set up their own environment in .venv.
PYTHON ?= python3
BIN := .venv/bin
# One process per core, each with one BLAS thread: more threads would compete for the cores.
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=auto

.PHONY: demo check test fast lint bench fuzz torture clean

demo: .venv/demo
	$(BIN)/python examples/demo.py

# Before a commit, in under two minutes on two cores: the linters beside the tests that are fast and need no data.
check: .venv/installed
	$(MAKE) --jobs=2 lint fast

fast: .venv/installed
	$(PYTEST) -q -m "not slow and not docs and not data"

test: .venv/installed lint
	$(PYTEST)

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed
	for file in benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

# Damaged files for every reader, for MINUTES minutes; files that are not handled well are kept in .fuzz.
MINUTES ?= 10
fuzz: .venv/installed
	$(BIN)/python tests/hostile/mutations.py --minutes $(MINUTES) --keep .fuzz

# The long run of docs/reliability.md: kills, flipped bits and damaged files by the thousand.
KILLS ?= 1000
FLIPS ?= 5000
CASES ?= 200000
torture: .venv/installed
	$(BIN)/python tests/hostile/kills.py --kills $(KILLS)
	$(BIN)/python tests/hostile/flips.py --flips $(FLIPS)
	$(BIN)/python tests/hostile/mutations.py --cases $(CASES) --keep .fuzz
	HASHLEARN_HOSTILE=1 $(BIN)/python -m pytest tests/hostile/test_interrupts.py

# The demo needs only the package; all else needs the developers' tools too, which are added to the same environment.
$(BIN)/python:
	$(PYTHON) -m venv .venv

.venv/demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch .venv/demo $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
