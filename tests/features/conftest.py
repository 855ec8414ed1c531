from pathlib import Path

import pytest
from counting import photographs


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return photographs(tmp_path / "photographs")
