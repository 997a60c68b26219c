"""What tests of several methods share."""

import pytest

from hashlearn.hashers import _early_stop


@pytest.fixture
def stops(monkeypatch):
    """Every early stop that is made from now on."""
    found = []
    begin = _early_stop.EarlyStop.__init__

    def spy(self, *args):
        begin(self, *args)
        found.append(self)

    monkeypatch.setattr(_early_stop.EarlyStop, "__init__", spy)
    return found


@pytest.fixture
def set_block_rows(monkeypatch):
    """Set the number of rows in a block; results must not depend on it."""

    def change(rows, n_features=64):
        sizes = {"_blocks.BLOCK_ROWS": rows, "_blocks._BLOCK_ELEMENTS": rows * n_features, "_residual._BLOCK": rows}
        for name, value in sizes.items():
            monkeypatch.setattr(f"hashlearn.hashers.{name}", value)

    return change


@pytest.fixture
def set_free_memory(monkeypatch):
    """Set the free memory in bytes; a memory map that needs more is read in blocks."""
    return lambda n: monkeypatch.setattr("hashlearn.hashers._blocks.free_memory", lambda: n)


@pytest.fixture
def set_cores(monkeypatch):
    """Set the number of cores, and so of threads."""

    def change(n):
        for module in ("hashlearn.threads", "hashlearn.hashers._residual"):
            monkeypatch.setattr(f"{module}.cores", lambda: n)

    return change
