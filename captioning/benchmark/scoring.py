"""Scoring in seconds: all default metrics, beside raw pycocoevalcap."""

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from omegaconf import DictConfig
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.meteor.meteor import Meteor
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

from captioning.benchmark.material import sentences
from captioning.benchmark.measurement import Measurement
from captioning.benchmark.processes import isolated, peak_bytes
from captioning.benchmark.timing import Run, timed
from captioning.metrics import Scorer
from captioning.metrics.java import find_java

Captions = dict[int, list[dict[str, str]]]
Tokens = dict[int, list[str]]
KILOBYTES = 1 if sys.platform == "darwin" else 1024
"""Bytes in the unit of `getrusage`."""


def measure(config: DictConfig) -> Iterator[Measurement]:
    """Candidates are tokenised and scored; references are tokenised beforehand on both sides."""
    captions, references = config.scoring.captions, config.scoring.references
    seconds, peak, largest = isolated(_seconds, captions, references, config.repeats)
    ours, naive = Run(captions, seconds["ours"]), Run(captions, seconds["raw"])
    yield Measurement(
        "scoring",
        f"{captions:,} captions, {references} references each",
        "captions",
        ours,
        naive,
        peak=peak,
        note=f"naive: raw pycocoevalcap ({naive.median:.2f} s); the largest Java process took {largest / 1e9:.2f} GB",
        raw={"peak of the largest Java process": largest},
    )


def _seconds(captions: int, references: int, repeats: int) -> tuple[dict[str, list[float]], int | None, int]:
    """Seconds of both in turn, peak memory of this process after ours, and of the largest that it started."""
    made = sentences(captions, references + 1)
    candidates = {i: texts[0] for i, texts in enumerate(made)}
    scorer = Scorer([texts[1:] for texts in made])
    scorer.score(candidates)  # tokenises the references too
    cpu = torch.device("cpu")
    peak, largest = peak_bytes(cpu), KILOBYTES * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss

    # pycocoevalcap starts whatever `java` is; it is to be the same one.
    os.environ["PATH"] = os.pathsep.join([str(find_java().parent), os.environ.get("PATH", "")])
    tokenized = _tokenized(_coco({i: texts[1:] for i, texts in enumerate(made)}))
    coco_candidates = _coco({i: [text] for i, text in candidates.items()})
    actions = {"ours": lambda: scorer.score(candidates), "raw": lambda: raw_scores(tokenized, coco_candidates)}
    return timed(actions, repeats, cpu), peak, largest


def _coco(captions: Tokens) -> Captions:
    return {i: [{"caption": text} for text in texts] for i, texts in captions.items()}


def _tokenized(captions: Captions) -> Tokens:
    """Captions tokenised by pycocoevalcap, without the line that its Java writes to standard error."""
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        tokens: Tokens = PTBTokenizer().tokenize(captions)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    return tokens


def raw_scores(references: Tokens, candidates: Captions) -> dict[str, float]:
    """The corpus scores, 0-1, by pycocoevalcap's own classes as its `COCOEvalCap.evaluate` calls them.

    Args:
        references: by image, tokenised.
        candidates: by image, one each, not tokenised.
    """
    captions = _tokenized(candidates)
    bleu, _ = Bleu(4).compute_score(references, captions, verbose=0)
    scores = {f"BLEU-{n}": score for n, score in enumerate(bleu, 1)}
    for name, scorer in (("METEOR", Meteor()), ("ROUGE-L", Rouge()), ("CIDEr", Cider())):
        scores[name] = float(scorer.compute_score(references, captions)[0])
    return scores
