import pytest
from counting import photographs


@pytest.fixture
def paths(tmp_path):
    return photographs(tmp_path / "photographs")
