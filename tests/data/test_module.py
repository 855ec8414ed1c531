import signal
import subprocess
from collections.abc import Iterable

import pytest
import torch
from numbered import Numbered, example

from captioning.data.batch import Batch
from captioning.data.example import Example
from captioning.data.module import CaptionData
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError

WORDS = ["a", "b", "c", "d", "e"]


def examples(count: int, longest: int = 6) -> list[Example]:
    def words(i: int, n: int, length: int) -> str:
        return " ".join(WORDS[(i + n + k) % 5] for k in range(length))

    lengths = [(1 + i % longest, 2, longest) for i in range(count)]
    return [example(i, *(words(i, n, length) for n, length in enumerate(each))) for i, each in enumerate(lengths)]


def data(num_workers: int = 0, **settings: int) -> CaptionData:
    splits = {"train": examples(23), "val": examples(9), "test": examples(5)}
    defaults = {"batch_size": 4, "eval_batch_size": 4, "captions_per_image": 2, "max_words": 5, "seed": 3}
    inputs = dict.fromkeys(splits, Numbered())
    return CaptionData(splits, inputs, Vocabulary(WORDS), num_workers=num_workers, **(defaults | settings))


def batches(module: CaptionData, split: str, epochs: int = 2) -> list[Batch]:
    loader = getattr(module, f"{split}_dataloader")()
    found = []
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        found += list(loader)
        assert len(loader) * (epoch + 1) == len(found)
    return found


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_workers_do_not_change_the_batches(split: str) -> None:
    alone, helped = batches(data(0), split), batches(data(2), split)
    for a, b in zip(alone, helped, strict=True):
        for name in ("index", "inputs", "tokens", "word_index"):
            assert torch.equal(getattr(a, name), getattr(b, name)), name


@pytest.mark.skipif(not hasattr(signal, "sigwaitinfo"), reason="the system does not say who sent a signal")
def test_workers_end_by_the_signal_of_their_main_process_and_of_no_other() -> None:
    loader = data(2).train_dataloader()
    batches = iter(loader)
    next(batches)
    worker, _ = loader._iterator._workers  # which PyTorch keeps, as they persist
    for number in ("INT", "TERM"):
        subprocess.run(["sh", "-c", f"kill -s {number} {worker.pid}"], check=True)
    assert len(list(batches)) > 1
    worker.terminate()  # as PyTorch and Python do with one that is stuck
    worker.join()
    assert worker.exitcode == 0


def test_an_epoch_holds_each_image_once() -> None:
    seen = torch.cat([batch.index for batch in batches(data(), "train", epochs=1)]).tolist()
    assert sorted(seen) == list(range(23))
    assert torch.cat([batch.index for batch in batches(data(), "val", epochs=1)]).tolist() == list(range(9))


def test_training_draws_anew_each_epoch_and_evaluation_never() -> None:
    def captions(split: str, epoch: int) -> dict[int, list[list[int]]]:
        module = data(max_words=6)
        loader = getattr(module, f"{split}_dataloader")()
        loader.sampler.set_epoch(epoch)
        return {
            int(i): [[t for t in row if t] for row in rows]
            for batch in loader
            for i, rows in zip(batch.index, batch.tokens.tolist(), strict=True)
        }

    assert captions("train", 0) != captions("train", 1)
    assert captions("train", 1) == captions("train", 1)
    assert captions("val", 0) == captions("val", 1)


def test_digest_follows_the_captions() -> None:
    assert data().digest() == data(batch_size=7).digest()
    splits = {"train": examples(23), "val": examples(9), "test": examples(6)}
    other = CaptionData(splits, dict.fromkeys(splits, Numbered()), Vocabulary(WORDS))
    assert other.digest() != data().digest()


def test_training_without_a_usable_caption_is_refused() -> None:
    splits = {"train": examples(2)[1:], "val": examples(2), "test": examples(2)}  # captions of 2 words and more
    with pytest.raises(CaptioningError, match="max_words=1"):
        CaptionData(splits, dict.fromkeys(splits, Numbered()), Vocabulary(WORDS), max_words=1)


def shown(loaded: Iterable[Batch]) -> list[dict[int, float]]:
    """The view of each image, by its position, in each batch."""
    return [dict(zip(batch.index.tolist(), batch.inputs[:, 0, 1].tolist(), strict=True)) for batch in loaded]


def test_only_training_images_are_shown_in_other_views() -> None:
    splits = {"train": examples(40), "val": examples(20), "test": examples(10)}
    inputs, views = dict.fromkeys(splits, Numbered()), [Numbered(1), Numbered(2)]
    module = CaptionData(splits, inputs, Vocabulary(WORDS), batch_size=40, max_words=6, views=views)
    first, second = shown(batches(module, "train"))
    assert set(first.values()) == set(second.values()) == {0, 1, 2}
    assert first != second
    assert {view for split in ("val", "test") for each in shown(batches(module, split)) for view in each.values()} == {
        0
    }


@pytest.mark.parametrize("done", [0, 3])
def test_training_that_goes_on_sees_the_views_that_it_would_have_seen(done: int) -> None:
    def module() -> CaptionData:
        splits = {"train": examples(23), "val": examples(2), "test": examples(2)}
        inputs, views = dict.fromkeys(splits, Numbered()), [Numbered(1), Numbered(2)]
        return CaptionData(splits, inputs, Vocabulary(WORDS), batch_size=4, max_words=6, seed=3, views=views)

    whole = shown(batches(module(), "train"))[6:]  # 6 batches are an epoch
    resumed = module()
    resumed.load_state_dict({"epoch": 1, "done": done})
    assert shown(resumed.train_dataloader()) == whole[done:]
