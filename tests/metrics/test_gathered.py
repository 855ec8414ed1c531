"""Captions gathered and scored: alone, and over two gloo processes of which one repeats images or has none."""

import json
from pathlib import Path

import pytest
import torch
import torch.distributed
import torch.multiprocessing

from captioning.errors import CaptioningError
from captioning.metrics import Scorer
from captioning.metrics.gathered import CaptionScores

REFERENCES = [
    ["a dog runs home"],
    ["a cat sits", "the cat is sitting"],
    ["two birds fly"],
    ["a red bus"],
    ["an old man"],
]
GENERATED = ["a dog runs", "the cat sits", "two birds", "a bus", "a café 犬"]
METRICS = ("BLEU", "ROUGE-L", "CIDEr")


@pytest.fixture
def metric() -> CaptionScores:
    return CaptionScores(Scorer(REFERENCES, METRICS))


def test_one_process_scores_what_the_scorer_does(metric):
    metric.update(torch.tensor([3, 0]), [GENERATED[3], GENERATED[0]])
    metric.update(torch.tensor([1, 2, 4], dtype=torch.int32), GENERATED[1:3] + GENERATED[4:])
    assert list(metric.captions().items()) == list(enumerate(GENERATED))
    assert metric.compute() == metric.scorer.score(dict(enumerate(GENERATED)))


def test_updates_go_on_after_captions_and_a_reset_forgets(metric):
    metric.update(torch.tensor([0]), ["one"])
    assert metric.captions() == {0: "one"}
    metric.update(torch.tensor([1]), ["two"])
    assert metric.captions() == {0: "one", 1: "two"}
    metric.reset()
    assert metric.captions() == {}
    with pytest.raises(CaptioningError, match="no captions"):
        metric.compute()


def test_first_of_repeats_is_kept(metric):
    metric.update(torch.tensor([1, 1, 0]), ["first", "second", "zero"])
    metric.update(torch.tensor([0]), ["again"])
    assert metric.captions() == {0: "zero", 1: "first"}


@pytest.mark.parametrize("awkward", ["", "\n\r\u2028", "a ||| b", "😀", "\x00", "\ud83d", "word " * 3000])
def test_every_string_comes_back(metric, awkward):
    metric.update(torch.tensor([2, 0, 1]), ["before", awkward, "after"])
    assert metric.captions() == {0: awkward, 1: "after", 2: "before"}


def _shares(case: str) -> list[list[int]]:
    return {
        "repeats": [[0, 2, 4, 1], [1, 3, 0, 3]],
        "empty rank 0": [[], [4, 3, 2, 1, 0]],
        "empty rank 1": [[0, 1, 2, 3, 4], []],
    }[case]


CASES = ("repeats", "empty rank 0", "empty rank 1")


def _rank(rank: int, folder: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=2)
    metric = CaptionScores(Scorer(REFERENCES, METRICS))
    found: dict[str, object] = {}
    for case in CASES:
        metric.reset()
        for position in _shares(case)[rank]:
            # Rank 1's caption of an image that rank 0 has too differs, so that the scores tell which one was kept.
            repeated = rank == 1 and position in _shares(case)[0]
            metric.update(torch.tensor([position]), ["repeated" if repeated else GENERATED[position]])
        captions = metric.captions()
        scores = metric.compute()
        found[case] = [list(captions.items()), scores.corpus, scores.per_image]
    metric.reset()
    metric.update(torch.tensor([99]), ["beyond"])
    try:
        metric.compute()
    except CaptioningError as error:
        found["error"] = str(error)
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("gloo")
    torch.multiprocessing.spawn(_rank, (str(folder),), nprocs=2)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_score_as_one(two_ranks, metric, case):
    expected = metric.scorer.score(dict(enumerate(GENERATED)))
    for rank in two_ranks:
        captions, corpus, per_image = rank[case]
        assert captions == [[position, caption] for position, caption in enumerate(GENERATED)]
        assert corpus == expected.corpus
        assert per_image == expected.per_image


def test_an_error_on_rank_0_is_raised_on_all(two_ranks):
    assert "positions 99 to 99" in two_ranks[0]["error"]
    assert two_ranks[1]["error"].startswith("rank 0 could not score")
    assert "positions 99 to 99" in two_ranks[1]["error"]
