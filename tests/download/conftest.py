import pytest


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    """The servers of these tests are on this machine, whatever the way out of it is."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
