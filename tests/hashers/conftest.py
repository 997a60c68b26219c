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
