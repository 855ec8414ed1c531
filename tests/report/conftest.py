import pytest


@pytest.fixture
def tab(chromium, page):
    """The module's page, opened anew."""
    with chromium.quiet(page):
        yield chromium
