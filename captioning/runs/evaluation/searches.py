"""The search that a configuration names: judged and built, the words of its filters as ids."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from annotated_types import Interval

from captioning.config.registry import build, check_part
from captioning.config.types import Config, Modules, check_value
from captioning.data.vocabulary import Vocabulary
from captioning.data.words import BAD_ENDINGS
from captioning.decoding import GeneratedCaption, check_limits
from captioning.decoding.confidence import Search
from captioning.errors import CaptioningError

DEFAULT_FILTERS = "captioning.decoding.Filters"
PIECE_FILTERS = "captioning.decoding.PieceFilters"
Words = Sequence[str | int | float]
WORDS: Mapping[str, Any] = {"prefix": Words, "forbidden": Words, "no_bad_ending": bool}
LONGEST = 256
SEARCH = Callable[..., list[GeneratedCaption]]
"""What a part must be: given a model and a context, it finds captions."""
Few = Annotated[int, Interval(ge=1, le=32)]
UNTRUSTED_LIMITS: Mapping[str, Any] = {
    **dict.fromkeys(("width", "groups", "n_best", "n"), Few),
    "max_length": Annotated[int, Interval(ge=1, le=LONGEST)],
}
"""What a checkpoint or a visitor may ask for: more could take all of the machine."""


def check_own(decoding: Config, given: Config) -> None:
    """Refuse a checkpoint's search beyond the limits for untrusted files, unless the user asked for
    it.
    """
    try:
        for name in UNTRUSTED_LIMITS.keys() & decoding.keys() - given.keys():
            check_value(f"decoding.{name}", decoding[name], UNTRUSTED_LIMITS[name])
    except CaptioningError as error:
        error.add_note("the checkpoint's search is too large; set a smaller number yourself")
        raise


def resolve_filter_words(decoding: Mapping[str, Any]) -> Config:
    """The settings of a search whose filters have lists of words, those of `no_bad_ending` too."""
    filters = decoding.get("filters")
    if not isinstance(filters, Mapping) or filters.get("_target_") != DEFAULT_FILTERS:
        return dict(decoding)
    for name in WORDS.keys() & filters.keys():
        check_value(f"decoding.filters.{name}", filters[name], WORDS[name])
    endings = sorted(BAD_ENDINGS) if filters.get("no_bad_ending") else []
    return {**decoding, "filters": {**filters, "no_bad_ending": endings}}


def check_search(decoding: Config, modules: Modules) -> None:
    """Refuse settings that a search does not take, before there are words to build it with."""
    settings = resolve_filter_words(decoding)
    filters = settings.get("filters")
    if isinstance(filters, Mapping) and filters.get("_target_") == DEFAULT_FILTERS:
        settings["filters"] = {name: value for name, value in filters.items() if name not in WORDS}
    check_part("decoding", SEARCH, settings, modules)


def build_search(
    decoding: Config, vocabulary: Vocabulary, max_tokens: int | None, modules: Sequence[str] = ()
) -> Search:
    """Build the search for a model of `max_tokens`."""
    settings = vocabulary.with_ids(resolve_filter_words(decoding))
    filters = settings.get("filters")
    if vocabulary.pieces and filters and filters.get("_target_") == DEFAULT_FILTERS:
        pieces = list(vocabulary.pieces)
        settings["filters"] = {**filters, "_target_": PIECE_FILTERS, "pieces": pieces}
    search = build("decoding", SEARCH, settings, modules)
    try:
        inspect.signature(search).bind("model", "context")
    except TypeError as error:  # settings of that name, or a search without them
        raise CaptioningError(
            f"decoding must leave the model and the context to the captioner: {error}"
        ) from error
    sizes = {name: decoding[name] for name in ("width", "groups", "n_best") if name in decoding}
    try:
        check_limits(**sizes)
    except ValueError as error:
        raise CaptioningError(f"decoding.{error}") from error
    longest = decoding.get("max_length", 1)
    if isinstance(max_tokens, int) and longest > max_tokens:
        key = "data.max_pieces" if vocabulary.pieces else "data.max_words"
        raise CaptioningError(
            f"decoding.max_length={longest} is longer than this model can read: at most "
            f"model.max_tokens={max_tokens}. Unless set, it is {key} + 1"
        )
    return search


def same_search(one: Config, other: Config) -> bool:
    """Return True if two decodings rank captions equally, apart from the number returned."""
    return _decisive(one) == _decisive(other)


def _decisive(decoding: Config) -> Config:
    """The settings that decide on captions, without filters that forbid nothing."""
    settings = dict(decoding)
    for name in ("beam_widths", "n_best", "_partial_"):
        settings.pop(name, None)
    filters = settings.pop("filters", None) or {}
    return settings | {f"filters.{name}": value for name, value in filters.items() if value}
