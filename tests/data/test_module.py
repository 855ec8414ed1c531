"""The data module: the same batches from any number of workers, in every epoch, and in a run that
goes on.
"""

import os
import signal
import subprocess
import time
from itertools import chain

import pytest
import torch
from numbered import Numbered, example
from support import little_disk

from captioning.data.loader import Loader
from captioning.data.module import CaptionData
from captioning.data.vocabulary import Vocabulary

WORDS = ["a", "b", "c", "d", "e"]
SIZES = {"train": 23, "val": 9, "test": 5}


def examples(count, longest=6):
    def words(i, n, length):
        return " ".join(WORDS[(i + n + k) % 5] for k in range(length))

    lengths = [(1 + i % longest, 2, longest) for i in range(count)]
    return [
        example(i, *(words(i, n, length) for n, length in enumerate(each)))
        for i, each in enumerate(lengths)
    ]


def data(num_workers=0, views=0, sizes=SIZES, **settings):
    splits = {name: examples(count) for name, count in sizes.items()}
    defaults = {"batch_size": 4, "eval_batch_size": 4, "captions_per_image": 2}
    defaults |= {"max_words": 6, "seed": 3, "num_workers": num_workers}
    more = [Numbered(1 + number) for number in range(views)]
    inputs, vocabulary = dict.fromkeys(splits, Numbered()), Vocabulary(WORDS)
    return CaptionData(splits, inputs, vocabulary, views=more, **(defaults | settings))


def batches(module, split, epochs=2):
    """Those of each epoch."""
    loader, found = getattr(module, f"{split}_dataloader")(), []
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        found.append(list(loader))
        assert len(loader) == len(found[-1])
    return found


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_workers_do_not_change_the_batches(split):
    alone, helped = (
        chain.from_iterable(batches(data(number, max_words=5), split)) for number in (0, 2)
    )
    for a, b in zip(alone, helped, strict=True):
        for name in ("index", "inputs", "tokens", "word_index"):
            assert torch.equal(getattr(a, name), getattr(b, name)), name


@pytest.mark.skipif(
    not hasattr(signal, "sigwaitinfo"), reason="the system does not say who sent a signal"
)
def test_workers_end_by_the_signal_of_their_main_process_and_of_no_other():
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


def mortal(request):
    if request == 1:
        time.sleep(1)  # by then the batch before has been announced
        os.kill(os.getpid(), signal.SIGKILL)
    return torch.tensor(request)


def test_a_worker_that_dies_with_a_batch_in_hand_is_told_as_any_other():
    items = iter(Loader(mortal, sampler=range(4), num_workers=1))
    # PyTorch's own, wherever this process is
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        time.sleep(60)
    # of the tensor that only the dead worker can give
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        next(items)


def test_a_batch_that_shared_memory_has_no_room_for_is_not_waited_for():
    with little_disk(1000):  # of the worker, too
        items = iter(Loader(lambda number: torch.zeros(10_000), sampler=range(2), num_workers=1))
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        next(items)


def test_there_are_no_more_workers_than_cores(monkeypatch):
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")  # as a quota of one core
    workers = [Loader(mortal, sampler=range(4), num_workers=n).num_workers for n in (0, 1, 8)]
    assert workers == [0, 1, 1]


def test_training_draws_anew_each_epoch_and_evaluation_never():
    def captions(split):
        epochs = []
        for epoch in batches(data(), split):
            rows = {}
            for batch in epoch:
                for index, tokens in zip(batch.index.tolist(), batch.tokens.tolist(), strict=True):
                    rows[index] = [[token for token in row if token] for row in tokens]
            assert sorted(rows) == list(range(SIZES[split]))
            epochs.append(rows)
        return epochs

    first, second = captions("train")
    assert first != second
    assert captions("train") == [first, second]
    first, second = captions("val")
    assert first == second


def shown(loaded):
    """The view of each image, by its position, in each batch."""
    return [
        dict(zip(batch.index.tolist(), batch.inputs[:, 0, 1].tolist(), strict=True))
        for batch in loaded
    ]


def test_only_training_images_are_shown_in_other_views_and_in_the_same_when_a_run_goes_on():
    module = data(views=2, sizes={"train": 40, "val": 20, "test": 10}, batch_size=40)
    ((first,), (second,)) = map(shown, batches(module, "train"))
    assert set(first.values()) == set(second.values()) == {0, 1, 2}
    assert first != second
    for split in ("val", "test"):
        assert {
            view
            for epoch in batches(module, split)
            for each in shown(epoch)
            for view in each.values()
        } == {0}
    whole = shown(batches(data(views=2), "train")[1])
    for done in (0, 3):
        resumed = data(views=2)
        resumed.load_state_dict({"epoch": 1, "done": done})
        assert shown(list(resumed.train_dataloader())) == whole[done:]
