"""Captions gathered and scored: alone, and over two gloo processes of which one repeats images or
has none.
"""

from pathlib import Path

import pytest
import torch
import torch.distributed
import torch.multiprocessing
from json_files import read_json, write_json

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
def metric():
    return CaptionScores(Scorer(REFERENCES, METRICS))


SHARES = {
    "repeats": [[0, 2, 4, 1], [1, 3, 0, 3]],
    "empty rank 0": [[], [4, 3, 2, 1, 0]],
    "empty rank 1": [[0, 1, 2, 3, 4], []],
}


def _rank(rank, folder):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/init", rank=rank, world_size=2
    )
    metric = CaptionScores(Scorer(REFERENCES, METRICS))
    found = {}
    for case, shares in SHARES.items():
        metric.reset()
        for position in shares[rank]:
            # Rank 1's caption of an image that rank 0 has too differs, so that the scores tell
            # which one was kept.
            repeated = rank == 1 and position in shares[0]
            metric.update(
                torch.tensor([position]), ["repeated" if repeated else GENERATED[position]]
            )
        captions = metric.captions()
        scores = metric.compute()
        found[case] = [list(captions.items()), scores.corpus, scores.per_image]
    metric.reset()
    metric.update(torch.tensor([99]), ["beyond"])
    try:
        metric.compute()
    except (CaptioningError, IndexError) as error:
        found["error"] = str(error)
    write_json(Path(folder, f"{rank}.json"), found)
    torch.distributed.destroy_process_group()


def test_two_ranks_score_as_one_and_both_raise_an_error(tmp_path, metric):
    torch.multiprocessing.start_processes(_rank, (str(tmp_path),), nprocs=2, start_method="fork")
    expected = metric.scorer.score(dict(enumerate(GENERATED)))
    captions = [list(pair) for pair in enumerate(GENERATED)]
    for rank in range(2):
        found = read_json(tmp_path / f"{rank}.json")
        assert [found[case] for case in SHARES] == 3 * [
            [captions, expected.corpus, expected.per_image]
        ]
        assert found["error"].endswith("list index out of range")
    assert found["error"].startswith("rank 0 could not score")
