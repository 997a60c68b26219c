# Two commands for a newcomer: `make demo` and `make test`. Each sets up its own environment in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint bench fuzz torture clean

demo: .venv/installed
	$(BIN)/python examples/demo.py

test: .venv/installed lint
	$(BIN)/python -m pytest

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed
	for file in benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

# Damaged files for every reader, for so many minutes; what is found is kept in .fuzz.
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

.venv/installed: pyproject.toml
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
