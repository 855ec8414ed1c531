"""The searches: what each may be told, with bounds and meaning, and what it calls.

A command reads the settings here, so that PyTorch is imported only when a search is called. Of a
text, what precedes the first colon is the label of the setting on the page of `captioning serve`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Interval
from pydantic import SkipValidation

from captioning.config.types import (
    Count,
    Length,
    NotNegative,
    Positive,
    PositiveInt,
    Samples,
    between,
    validated,
)
from captioning.decoding.caption import FORBIDDEN, GeneratedCaption, best_first
from captioning.decoding.filters import AnyFilter
from captioning.decoding.ranking import NORMALISATIONS, Ranking, check_limits

if TYPE_CHECKING:
    from captioning.backbones.context import ContextSet
    from captioning.models.protocol import Captioner
else:
    Captioner = ContextSet = Any

MaxLength = Annotated[
    Length, "longest caption, in words: or in pieces of subwords; the end counts as one"
]
Width = Annotated[Count, "beam width: captions extended together"]
Penalty = Annotated[
    float,
    between(-100, 100),  # powers of lengths overflow beyond
    "prefer longer captions: 0 ranks by probability, 1 by the mean per word, more favours length",
]
Normalisation = Annotated[
    Literal[*NORMALISATIONS],  # type: ignore[valid-type]
    "length formula: length, or gnmt (Wu et al. 2016)",
]
EarlyStopping = Annotated[
    bool,
    "early stopping: ends after as many captions as the beam is wide; otherwise when no better "
    "caption is possible",
]


@validated
def greedy(
    model: SkipValidation[Captioner],
    context: SkipValidation[ContextSet],
    max_length: MaxLength = 15,
    forbidden: Sequence[int] = FORBIDDEN,
    filters: AnyFilter | None = None,
) -> list[GeneratedCaption]:
    """Greedy decoding; scores are sums of log-probabilities, including EOS."""
    from captioning.decoding.sampling import generate

    generated = generate(
        model, context, 1, lambda words, t: words.argmax(-1), max_length, forbidden, filters
    )
    return [caption for (caption,) in generated.captions()]


@validated
def sample(
    model: SkipValidation[Captioner],
    context: SkipValidation[ContextSet],
    n: Annotated[Samples, "samples: the most probable is the caption"] = 1,
    temperature: Annotated[Positive, "temperature: higher gives more surprising captions"] = 1.0,
    top_k: Annotated[
        PositiveInt | None, "number of candidate words: samples from this many most probable words"
    ] = None,
    top_p: Annotated[
        float,
        Interval(gt=0, le=1),
        "share of candidate words: samples from the most probable with this total probability",
    ] = 1.0,
    seed: Annotated[int, Interval(ge=0, lt=2**63), "random seed"] = 0,
    max_length: MaxLength = 15,
    *,
    forbidden: Sequence[int] = FORBIDDEN,
    filters: AnyFilter | None = None,
) -> list[GeneratedCaption]:
    """N independent samples, the most probable first, with scores as in `greedy`.

    Every word is drawn from the model's distribution after dividing log-probabilities by
    `temperature` and keeping the `top_k` most probable words (Fan et al., "Hierarchical Neural
    Story Generation", 2018), then the nucleus, the most probable words with a total probability of
    at least `top_p` (Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020).

    Draws depend only on the seed, the image's context vectors, the sample and the step: neither the
    order of images nor the batch changes a caption, and equal images have equal samples.
    """
    from captioning.decoding.sampling import generate, sampler

    choose = sampler(context, n, temperature, top_k, top_p, seed, max_length)
    generated = generate(model, context, n, choose, max_length, forbidden, filters)
    return [*map(best_first, generated.captions())]


@validated
def beam_search(
    model: SkipValidation[Captioner],
    context: SkipValidation[ContextSet],
    width: Width = 3,
    max_length: MaxLength = 15,
    length_penalty: Penalty = 1.0,
    forbidden: Sequence[int] = FORBIDDEN,
    *,
    filters: AnyFilter | None = None,
    normalisation: Normalisation = "length",
    n_best: Annotated[Count, "alternatives: captions per image, the best included"] = 1,
    early_stopping: EarlyStopping = False,
) -> list[GeneratedCaption]:
    """Find up to `n_best` captions per image with a beam of `width` hypotheses.

    At each step the continuations of all hypotheses are ranked together. An EOS among the best
    `width` ends its hypothesis; open hypotheses fill the beam. The search of an image ends when no
    open hypothesis can reach the `n_best`, or with `early_stopping` after `width` complete
    captions, which makes a beam of one greedy search. Captions cut at `max_length` compete by their
    scores.

    The score of a caption of T tokens, including EOS, is its log-probability divided by T^alpha
    with alpha = `length_penalty` (1 is the mean per token, 0 ranks by probability), or by ((5 + T)
    / 6)^alpha (`gnmt`: Wu et al., "Google's Neural Machine Translation System", 2016, Eq. 14).
    """
    from captioning.decoding.beam import search

    check_limits(width, n_best=n_best)
    ranking = Ranking(max_length, length_penalty, normalisation, n_best, early_stopping)
    return search(model, context, width, 1, 0.0, ranking, forbidden, filters)


@validated
def diverse_beam_search(
    model: SkipValidation[Captioner],
    context: SkipValidation[ContextSet],
    width: Width = 6,
    groups: Annotated[Count, "groups: each gives one caption"] = 3,
    diversity: Annotated[
        NotNegative, "diversity: cost of a word per earlier group that chose it"
    ] = 0.5,
    max_length: MaxLength = 15,
    length_penalty: Penalty = 1.0,
    *,
    forbidden: Sequence[int] = FORBIDDEN,
    filters: AnyFilter | None = None,
    normalisation: Normalisation = "length",
    early_stopping: EarlyStopping = False,
) -> list[GeneratedCaption]:
    """Diverse beam search (Vijayakumar et al. 2016) with Hamming diversity.

    Returns the best caption of each group, best first. Each group is a separate beam search with
    `width / groups` hypotheses, which ranks a word lower by `diversity` for each hypothesis of an
    earlier group with this word at the same step. Scores do not include this. (D) EOS does not
    count as a word, and ended groups do not count. (D) In the authors' code penalties add up over
    the steps of a hypothesis, and the words of the group before are those of the hypotheses that it
    has left one step later.
    """
    from captioning.decoding.beam import search

    check_limits(width, groups)
    ranking = Ranking(max_length, length_penalty, normalisation, 1, early_stopping)
    return search(model, context, width // groups, groups, diversity, ranking, forbidden, filters)
