import math
import pickle
import resource
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from counting import COUNT, HEADER_BYTES, CountingCNN, build, counted
from PIL import Image
from processes import PROCESSES
from pydantic import ValidationError
from torch import Tensor

from captioning.backbones import Backbone
from captioning.backbones.scratch import SmallCNN
from captioning.config.explain import explain
from captioning.data.views import Change
from captioning.errors import CaptioningError
from captioning.features.cache import CHECKSUMS, DATA
from captioning.features.inputs import cached_bytes


def build_in_process(paths: list[Path], folder: Path, log: Path, seconds: float) -> None:
    build(CountingCNN(log, seconds), paths, folder)


def direct(backbone: Backbone, paths: list[Path]) -> Tensor:
    return torch.cat([backbone(backbone.transform.read(path)[None]) for path in paths])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_rows_are_the_backbones_output(tmp_path: Path, paths: list[Path], num_workers: int) -> None:
    backbone = CountingCNN()
    cache = build(backbone, paths, tmp_path / "cache", num_workers=num_workers)
    expected = direct(backbone, paths).half()
    assert len(cache) == COUNT
    assert cache[3].shape == (9, 7)
    torch.testing.assert_close(cache.rows(range(COUNT)), expected, atol=2e-3, rtol=0)
    torch.testing.assert_close(torch.from_numpy(cache[3]), expected[3], atol=2e-3, rtol=0)
    assert torch.equal(cache.rows([5, 1, 5]), torch.stack([torch.from_numpy(cache[i]) for i in (5, 1, 5)]))


def test_mirrored_photographs_have_a_cache_of_their_own(tmp_path: Path, paths: list[Path]) -> None:
    backbone = CountingCNN()
    plain, mirrored = (
        build(view, paths, tmp_path / "cache") for view in (backbone, backbone.viewed(Change(mirror=True)))
    )
    images = torch.stack([backbone.transform.read(path) for path in paths])
    torch.testing.assert_close(mirrored.rows(range(COUNT)), backbone(images.flip(-1)).half(), atol=2e-3, rtol=0)
    torch.testing.assert_close(plain.rows(range(COUNT)), backbone(images).half(), atol=2e-3, rtol=0)


class Padding(CountingCNN):
    """The same for photographs whose aspect ratio is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.transform = replace(self.transform, resize="pad")
        self.partial = True


def test_vectors_beside_a_photograph_are_no_numbers_and_do_not_count(tmp_path: Path, paths: list[Path]) -> None:
    for path in paths[::2]:
        with Image.open(path) as image:
            image.crop((0, 0, 13, 4)).save(path)  # then 4 of 12 rows are covered, else 8
    backbone = Padding()
    cache = build(backbone, paths, tmp_path / "cache")
    assert cache.folder != build(CountingCNN(), paths, tmp_path / "cache").folder
    rows = cache.rows(range(COUNT))
    absent = rows.isnan()
    assert torch.equal(absent.any(dim=2), absent.all(dim=2))
    middle = [3, 4, 5]
    for row in range(COUNT):
        assert (~absent[row, :, 0]).nonzero().flatten().tolist() == (list(range(9)) if row % 2 else middle)
    images = torch.stack([backbone.transform.read(path) for path in paths])
    torch.testing.assert_close(rows, backbone(images).half(), atol=2e-3, rtol=0, equal_nan=True)
    means = [rows[row][~absent[row]].double().square().mean().item() for row in range(COUNT)]
    assert cache.scale() == pytest.approx((sum(means) / COUNT) ** -0.5, rel=1e-6)


def test_features_that_are_no_numbers_are_found_among_those_that_are_not_there(
    tmp_path: Path, paths: list[Path]
) -> None:
    with torch.no_grad():
        (backbone := Padding()).network[-1].weight.mul_(1e7)
    with pytest.raises(CaptioningError, match=r"largest feature of .*0\.png is .*e\+0\d, which float16 cannot hold"):
        build(backbone, paths, tmp_path / "cache")


def test_what_is_built_is_counted_once(tmp_path: Path, paths: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    cache = build(CountingCNN(), paths, tmp_path / "cache")
    assert capsys.readouterr().err.startswith("features: 11 images in ")
    assert cached_bytes(COUNT, CountingCNN()) == (cache.folder / DATA).stat().st_size
    build(CountingCNN(), paths, tmp_path / "cache")
    assert capsys.readouterr().err == ""


def test_float32_is_exact(tmp_path: Path, paths: list[Path]) -> None:
    backbone = CountingCNN()
    cache = build(backbone, paths, tmp_path / "cache", dtype="float32", batch_size=1)
    assert torch.equal(cache.rows(range(COUNT)), direct(backbone, paths))


def test_scale_gives_unit_root_mean_square_on_the_training_rows(tmp_path: Path, paths: list[Path]) -> None:
    cache = build(CountingCNN(factor=37), paths, tmp_path / "cache")
    numbers = [float(x) for row in (2, 3, 7) for x in cache[row].flatten()]
    by_hand = 1 / math.sqrt(sum(x * x for x in numbers) / len(numbers))
    assert cache.scale([2, 3, 7]) == pytest.approx(by_hand, rel=1e-9)
    assert cache.scale(slice(2, 4)) == pytest.approx(cache.scale([2, 3]), rel=1e-9)
    scaled = cache.rows(range(COUNT)).double() * cache.scale()
    assert scaled.square().mean().sqrt().item() == pytest.approx(1, rel=1e-6)


def test_features_of_zero_have_no_scale(tmp_path: Path, paths: list[Path]) -> None:
    cache = build(CountingCNN(factor=0), paths, tmp_path / "cache")
    with pytest.raises(CaptioningError, match=r"all features .* are 0"):
        cache.scale()


def test_second_build_computes_nothing_even_where_the_data_set_was_moved(tmp_path: Path, paths: list[Path]) -> None:
    log, moved = tmp_path / "log", tmp_path / "elsewhere"
    build(CountingCNN(log), paths, tmp_path / "cache")
    assert counted(log) == COUNT
    build(CountingCNN(log), paths, tmp_path / "cache", batch_size=3)
    paths[0].parent.rename(moved)
    build(CountingCNN(log), [moved / path.name for path in paths], tmp_path / "cache")
    assert counted(log) == COUNT


def test_whatever_changes_the_features_changes_the_cache(tmp_path: Path, paths: list[Path]) -> None:
    def folder(backbone: Backbone, paths: list[Path], **settings: str) -> Path:
        return build(backbone, paths, tmp_path / "cache", **settings).folder

    folders = [folder(CountingCNN(), paths), folder(CountingCNN(factor=2), paths)]
    folders += [folder(CountingCNN(), paths, dtype="float32")]
    folders += [folder(CountingCNN(), other) for other in (paths[::-1], paths[1:])]
    Image.new("RGB", (9, 13)).save(paths[4])
    folders += [folder(CountingCNN(), paths)]
    assert len(set(folders)) == 6


def test_two_processes_build_once(tmp_path: Path, paths: list[Path]) -> None:
    folder, log = tmp_path / "cache", tmp_path / "log"
    children = [PROCESSES.Process(target=build_in_process, args=(paths, folder, log, 0.2)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0]
    assert counted(log) == COUNT


def test_truncated_and_foreign_caches_are_never_served(tmp_path: Path, paths: list[Path]) -> None:
    folder = tmp_path / "cache"
    cache = build(CountingCNN(), paths, folder)
    other = build(CountingCNN(factor=2), paths, folder)
    data, checksums = cache.folder / DATA, cache.folder / CHECKSUMS
    for file, old in ((data, data.read_bytes()), (checksums, checksums.read_bytes())):
        file.write_bytes(old[:-4])
        with pytest.raises(CaptioningError, match=r"cut short.*: delete the"):
            build(CountingCNN(), paths, folder)
        file.write_bytes(old)

    shutil.copy(other.folder / DATA, data)
    shutil.copy(other.folder / CHECKSUMS, checksums)
    with pytest.raises(CaptioningError, match=rf"{DATA} is damaged at photograph 0: delete"):
        build(CountingCNN(), paths, folder).rows([0])

    data.unlink()
    with pytest.raises(CaptioningError, match=r"cannot be read .*No such file"):
        build(CountingCNN(), paths, folder)


def test_pickles_without_its_content(tmp_path: Path, paths: list[Path]) -> None:
    cache = build(CountingCNN(), paths, tmp_path / "cache")
    expected = cache.rows(range(COUNT))
    pickled = pickle.dumps(cache)
    assert len(pickled) < 1000
    assert torch.equal(pickle.loads(pickled).rows(range(COUNT)), expected)


def full_disk(paths: list[Path], folder: Path, message: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        build(CountingCNN(), paths, folder)
    except OSError as error:
        message.write_text(explain(error))


def test_full_disk_is_an_error_and_the_build_goes_on_later(tmp_path: Path, paths: list[Path]) -> None:
    folder, message, log = tmp_path / "cache", tmp_path / "message", tmp_path / "log"
    child = PROCESSES.Process(target=full_disk, args=(paths, folder, message))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert "cannot write the feature cache" in message.read_text()
    assert [path.suffix for path in folder.iterdir() if path.is_dir()] == [".part"]
    build(CountingCNN(log), paths, folder)
    assert counted(log) == COUNT - (1000 - HEADER_BYTES) // (9 * 7 * 2)


def test_too_little_room_is_told_before_computing(
    tmp_path: Path, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 90, 10))
    with pytest.raises(CaptioningError, match=r"0\.00 GB are free"):
        build(CountingCNN(log), paths, tmp_path / "cache")
    assert counted(log) == 0


def test_features_too_large_for_half_precision(tmp_path: Path, paths: list[Path]) -> None:
    with pytest.raises(CaptioningError, match=r"largest feature of .*0\.png is .*e\+06, which float16 cannot hold"):
        build(CountingCNN(factor=1e6), paths, tmp_path / "cache")
    assert [path.suffix for path in (tmp_path / "cache").iterdir() if path.is_dir()] == [".part"]
    assert build(CountingCNN(factor=1e6), paths, tmp_path / "cache", dtype="float32").rows([0]).isfinite().all()


def test_refused_arguments(tmp_path: Path, paths: list[Path]) -> None:
    with pytest.raises(CaptioningError, match="trainable backbone"):
        build(SmallCNN(7, 12, 3), paths, tmp_path / "cache")
    with pytest.raises(ValidationError, match="dtype"):
        build(CountingCNN(), paths, tmp_path / "cache", dtype="int8")
    with pytest.raises(FileNotFoundError, match=r"absent\.png"):
        build(CountingCNN(), [tmp_path / "absent.png"], tmp_path / "cache")
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        build(CountingCNN(), paths, tmp_path / "file")
