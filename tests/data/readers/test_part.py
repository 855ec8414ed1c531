import re
from pathlib import Path
from typing import Any

import pytest

from captioning.data.readers.part import Part
from captioning.errors import CaptioningError

SOURCE = Path("captions.json")


def test_the_whole_is_all_images_in_their_order() -> None:
    assert Part([0, 1]).choose([5, 3, "x", 4], SOURCE) == [5, 3, "x", 4]


@pytest.mark.parametrize("count", [10, 101, 1009])
def test_shares_side_by_side_are_exact_and_disjoint(count: int) -> None:
    images = list(range(count))
    chosen = [Part(share).choose(images, SOURCE) for share in ([0, 0.7], [0.7, 0.8], [0.8, 1])]
    assert sorted(image for part in chosen for image in part) == images
    assert all(abs(len(part) - share * count) <= 1 for part, share in zip(chosen, (0.7, 0.1, 0.2), strict=True))
    assert all(part == sorted(part) for part in chosen)


def test_a_share_depends_on_the_ids_and_not_on_their_order() -> None:
    # SHA-256 of "1" to "8" in hexadecimal begins 6b, d4, 4e, 4b, ef, e7, 79, 2c: 8, 4, 3 are the first three
    assert Part([0, 3 / 8]).choose([1, 2, 3, 4, 5, 6, 7, 8], SOURCE) == [3, 4, 8]
    assert Part([0, 3 / 8]).choose(list("82417653"), SOURCE) == ["8", "4", "3"]


def test_a_list_chooses_in_its_own_order(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_bytes(b"\xef\xbb\xbf12\r\n\r\n b c.jpg \r\n3")
    assert Part(str(path)).choose([3, "b c.jpg", 7, 12], SOURCE) == [12, "b c.jpg", 3]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("3\n\n8\n", "ids.txt, line 3: 8 is not among the 2 images of captions.json"),
        ("3\n4\n3\n", "ids.txt, line 3: 3 is listed twice, first in .*ids.txt, line 1"),
        ("\n", "ids.txt lists no images"),
    ],
)
def test_lists_that_do_not_fit(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "ids.txt"
    path.write_text(content)
    with pytest.raises(CaptioningError, match=message):
        Part(path).choose([3, 4], SOURCE)


def test_a_share_without_images() -> None:
    with pytest.raises(CaptioningError, match=r"the share \[0, 0\.1\] of the 4 images of captions\.json is no image"):
        Part([0, 0.1]).choose([1, 2, 3, 4], SOURCE)


@pytest.mark.parametrize(
    "value", [None, 0.5, [], [0.5], [0, 0.5, 1], [0, None], ["a", "b"], [0.5, 0.5], [1, 0], [-0.1, 1], [0, 8]]
)
def test_shares_that_are_none(value: Any) -> None:
    with pytest.raises(CaptioningError, match=re.escape(f"{value} is no share of images; ")):
        Part(value)
