"""Translation: sentences in two languages, words as a context set, and sacreBLEU.

A reader, a backbone and a metric of one's own. Each stands in a configuration by its path, and
commands that load the checkpoint of such a run name this module:
`modules=[experiments.two_languages.sentences]`.

B sentences of at most S words of D features.
"""

from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from captioning.backbones.base import Backbone, FeatureSource
from captioning.backbones.context import ContextSet
from captioning.backbones.images import ImageTransform
from captioning.backbones.precomputed import FeatureOnlyBackbone
from captioning.config.types import Count, Length, UserPath, Width, validated, validated_class
from captioning.data.dataset import Inputs
from captioning.data.example import SPLITS, Example, Reference, Splits
from captioning.data.readers.parsing import at
from captioning.data.readers.reading import FileName, OfEachSplit, ReadSplits
from captioning.data.vocabulary import Vocabulary
from captioning.data.words import ENGLISH
from captioning.errors import CaptioningError
from captioning.files import read_bytes
from captioning.metrics.metric import (
    Fields,
    Images,
    Metric,
    Texts,
    first_captions,
    first_pairs,
    main_score,
)
from captioning.metrics.statistics import PERCENT, Array, MetricResult, Statistics
from captioning.tokens import NAMES, PAD


@validated_class
class ParallelReader:
    """Sentences of `root/NAME.SOURCE` with their translations in `root/NAME.TARGET`, in UTF-8.

    Words are what blanks separate. The id of a pair is its line number, from 1; lines that are
    blank in both files are left out.

    Args:
        splits: NAME of each of `train`, `val` and `test`.
    """

    root: UserPath
    source: FileName
    target: FileName
    splits: OfEachSplit[FileName]

    def __call__(self) -> ReadSplits:
        """Read `train`, `val` and `test`."""
        return {split: self._pairs(self.root / self.splits[split]) for split in SPLITS}

    def _pairs(self, name: Path) -> list[Example]:
        path, other = Path(f"{name}.{self.source}"), Path(f"{name}.{self.target}")
        sources, targets = _lines(path), _lines(other)
        if unpaired := sorted(sources.keys() ^ targets.keys()):
            raise CaptioningError(f"line {unpaired[0]} has words in only one of {path} and {other}")
        if not sources:
            raise CaptioningError(f"{path} has no sentences")
        examples = []
        for number, source in sources.items():
            words = targets[number]
            reference = Reference(" ".join(words), words)
            examples.append(Example(number, path, (reference,), source=source))
        return examples


def _lines(path: Path) -> dict[int, tuple[str, ...]]:
    """The words of each line by its number, without blank lines."""
    with at(path):
        lines = read_bytes(path).decode("utf-8-sig").split("\n")
    words = {number: tuple(line.split()) for number, line in enumerate(lines, start=1)}
    return {number: line for number, line in words.items() if line}


class Words(FeatureOnlyBackbone):
    """Embedded words as context: c_i = E_s x_i on a grid of (1, S).

    Bahdanau et al. 2015, appendix A.2.1, without the recurrent layers.

    The source words are learnt from the training split and saved
    with the weights. Weights are initialised at unit scale, N(0, 1) (D), and trained with the
    model.

    Args:
        max_size: largest source vocabulary, including the special tokens: rows of the embedding.
        min_count: rarer words become UNK.
        max_source: S; the rest of a longer sentence is cut off (D).
    """

    @validated
    def __init__(
        self,
        dim: Width = 512,
        max_size: Width = 10000,
        min_count: Count = 5,
        max_source: Length = 50,
    ) -> None:
        embedding = nn.Embedding(max_size, dim, padding_idx=PAD)
        super().__init__(
            "words", embedding, dim, (1, max_source), ImageTransform(1), trainable=True
        )
        self.max_size, self.min_count = max_size, min_count
        self.words: list[str] = []  # of the source vocabulary, without the special tokens

    def get_extra_state(self) -> Tensor:
        """The words as UTF-8: checkpoints of strangers hold tensors and plain values alone."""
        return torch.tensor(list(" ".join(self.words).encode()), dtype=torch.uint8, device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        self.words = (
            bytes(state.byte().tolist())
            .decode(errors="replace")
            .split()[: self.max_size - len(NAMES)]
        )

    def valid_mask(self, inputs: Tensor) -> Tensor:
        """`[B, S]` bool, for ids `[B, S]`."""
        return inputs != PAD

    def context(self, features: Tensor) -> ContextSet:
        """The context set of ids `[B, S]`."""
        return ContextSet(self.network(features), self.grid, self.valid_mask(features))

    def prepare(self, splits: Splits) -> None:
        """Learn the words of the training split, unless a checkpoint has brought some."""
        if not self.words:
            sentences = _sentences(splits["train"])
            self.words = Vocabulary.from_captions(sentences, self.min_count, self.max_size).words

    def open_inputs(self, examples: Sequence[Example], store: FeatureSource, name: str) -> Inputs:
        vocabulary, most = Vocabulary(self.words), self.grid[1]
        ids = torch.full((len(examples), most), PAD)
        for row, sentence in zip(ids, _sentences(examples), strict=True):
            row[: len(sentence)] = torch.tensor(vocabulary.encode(sentence[:most]))
        return Sources(ids)


class Sources:
    """The source sentences of a split as ids `[R, S]`, PAD after the end of a sentence."""

    def __init__(self, ids: Tensor) -> None:
        self.ids = ids

    def rows(self, indices: Sequence[int]) -> Tensor:
        return self.ids[list(indices)]

    def fit_scale(self, backbone: Backbone) -> None:
        """Words keep the scale of their embedding."""


def _sentences(examples: Sequence[Example]) -> list[tuple[str, ...]]:
    if not all(example.source for example in examples):
        raise CaptioningError(
            "backbone=words reads source sentences, and this data set has none: set data=parallel"
        )
    return [example.source for example in examples]


class SacreBleu(Metric):
    """BLEU by sacreBLEU (Post, "A Call for Clarity in Reporting BLEU Scores", WMT 2018).

    Words are what blanks separate, in lower case, as the texts come: `tok:none` and `case:lc` in
    the signature. Single sentences are scored with the effective order, as sacreBLEU recommends.
    """

    name = "sacreBLEU"
    scores = (main_score("sacreBLEU"),)
    tokenized = False

    def __init__(self, language: str = ENGLISH, timeout: float = 60.0) -> None:
        super().__init__(language, timeout)
        try:
            from sacrebleu import BLEU  # an extra
        except ImportError as error:
            raise ImportError(
                "sacrebleu is not installed: pip install 'captioning[translation]'"
            ) from error
        self._compute = BLEU.compute_bleu
        self._bleu = partial(BLEU, lowercase=True, tokenize="none")

    def signature(self, references: Texts) -> Fields:
        corpus = self._bleu(force=True, references=list(zip_longest(*references)))
        return dict(field.split(":", 1) for field in str(corpus.get_signature()).split("|"))

    def compute(self, captions: Texts, references: Texts, images: Images = None) -> MetricResult:
        streams = list(zip_longest(*references))
        corpus = self._bleu(force=True).corpus_score(first_captions(captions), streams)
        sentence = self._bleu(effective_order=True)
        scores = [sentence.sentence_score(*pair) for pair in first_pairs(captions, references)]
        rows = np.array([[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in scores], np.float64)
        return MetricResult(
            {self.name: corpus.score / PERCENT},
            {self.name: [score.score / PERCENT for score in scores]},
            Statistics((self.name,), rows, self._of_sums),
        )

    def _of_sums(self, sums: Array) -> Array:
        """`[K, 10]` to `[K, 1]`, smoothed as by default."""
        scores = [
            self._compute(n[2:6], n[6:], n[0], n[1], smooth_method="exp").score
            for n in sums.astype(int).tolist()
        ]
        return np.array(scores)[:, None] / PERCENT
