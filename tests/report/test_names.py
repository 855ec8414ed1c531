"""Every system of this project has a name, and the page of systems says it."""

import re

from captioning.config.registry import CONF
from captioning.report.names import NAMES, SMALL, system_name

PAGE = CONF.parent / "captioning" / "models" / "README.md"


def test_every_system_is_called_as_people_call_it() -> None:
    systems = {path.stem.removesuffix(SMALL) for path in (CONF / "model").glob("*.yaml")}
    assert systems == set(NAMES)
    assert len(set(NAMES.values())) == len(NAMES)
    assert not [name for name in NAMES.values() if "_" in name]


def test_the_page_of_systems_has_the_same_names() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("| system | called |")[2].partition("\n\n")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.M)) == NAMES


def test_sizes_and_systems_of_users() -> None:
    assert system_name("sat_soft_small") == "Show, Attend and Tell, soft, small"
    assert system_name("my_show_tell_small") == "my_show_tell_small"
