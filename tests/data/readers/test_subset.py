from pathlib import Path

import pytest

from captioning.data.readers.subset import Subset

SOURCE = Path("captions.json")


def test_the_whole_is_all_images_in_their_order() -> None:
    assert Subset([0, 1]).choose([5, 3, "x", 4], SOURCE) == [5, 3, "x", 4]


@pytest.mark.parametrize("count", [10, 101, 1009])
def test_shares_side_by_side_are_exact_and_disjoint(count: int) -> None:
    images = list(range(count))
    chosen = [Subset(share).choose(images, SOURCE) for share in ([0, 0.7], [0.7, 0.8], [0.8, 1])]
    assert sorted(image for subset in chosen for image in subset) == images
    assert all(abs(len(subset) - share * count) <= 1 for subset, share in zip(chosen, (0.7, 0.1, 0.2), strict=True))
    assert all(subset == sorted(subset) for subset in chosen)


def test_a_share_depends_on_the_ids_and_not_on_their_order() -> None:
    # SHA-256 of "1" to "8" in hexadecimal begins 6b, d4, 4e, 4b, ef, e7, 79, 2c: 8, 4, 3 are the first three
    assert Subset([0, 3 / 8]).choose([1, 2, 3, 4, 5, 6, 7, 8], SOURCE) == [3, 4, 8]
    assert Subset([0, 3 / 8]).choose(list("82417653"), SOURCE) == ["8", "4", "3"]


def test_a_list_chooses_in_its_own_order(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_bytes(b"\xef\xbb\xbf12\r\n\r\n b c.jpg \r\n3")
    assert Subset(str(path)).choose([3, "b c.jpg", 7, 12], SOURCE) == [12, "b c.jpg", 3]
