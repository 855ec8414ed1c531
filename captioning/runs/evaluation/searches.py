"""The search that a configuration names: judged and built, its filters for a vocabulary."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from captioning.config.registry import CheckedPart, check_part, parameters_of, preparing
from captioning.config.types import Config, Modules, between, check_value
from captioning.data.vocabulary import Vocabulary
from captioning.decoding import Filter, GeneratedCaption, check_limits
from captioning.decoding.confidence import Search
from captioning.decoding.filters import Pieces, Tokens, kind_of_words
from captioning.errors import CaptioningError, naming
from captioning.tokens import NAMES, UNK

DEFAULT_FILTERS = "captioning.decoding.Filters"
LONGEST = 256
SEARCH = Callable[..., list[GeneratedCaption]]
"""What a part must be: given a model and a context, it finds captions."""
Few = Annotated[int, between(1, 32)]
UNTRUSTED_LIMITS: Mapping[str, Any] = {
    **dict.fromkeys(("width", "groups", "n_best", "n"), Few),
    "max_length": Annotated[int, between(1, LONGEST)],
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


def build_filter(part: CheckedPart, vocabulary: Vocabulary) -> Any:
    """Build a filter; settings of the kind `Words` are words of the vocabulary, or their ids.

    A `Filter` reads words, and any other function of ids takes ids.
    """
    reads_words = inspect.isclass(part.target) and issubclass(part.target, Filter)
    arguments = dict(part.arguments)
    for name, parameter in parameters_of(part.target).items():
        kind = kind_of_words(parameter.annotation)
        if kind and name in arguments:
            key = f"{part.key}.{name}"
            check_value(key, arguments[name], parameter.annotation)
            words = [str(word) for word in arguments[name]]
            if kind.known:
                with naming(key):
                    words = [known for text in words for known in vocabulary.words_in(text)]
            arguments[name] = words if reads_words else _ids(key, words, vocabulary)
    built = replace(part, arguments=arguments).build()
    return _over(part.key, built, vocabulary) if reads_words else built


def _ids(key: str, words: Iterable[str], vocabulary: Vocabulary) -> list[int]:
    """The ids of known words, for a filter that does not read words."""
    if vocabulary.pieces:
        raise CaptioningError(
            f"{key} is for a function of ids, and these are pieces of words: derive the filter "
            "from captioning.decoding.Filter, which reads words"
        )
    return [i for i in vocabulary.encode(words) if i != UNK]


def _over(key: str, built: Filter, vocabulary: Vocabulary) -> Filter:
    code = vocabulary.language.code
    tokens = Tokens([*NAMES, *vocabulary.words], code)
    if vocabulary.pieces:
        tokens = Pieces(vocabulary.pieces, code, vocabulary.encode)
    with preparing(key):
        return built.over(tokens)


def build_search(
    decoding: Config, vocabulary: Vocabulary, max_tokens: int | None, modules: Modules = ()
) -> Search:
    """Build the search for a model of `max_tokens`."""
    part = check_part("decoding", SEARCH, decoding, modules)
    filters = part.arguments.get("filters")
    if isinstance(filters, CheckedPart):
        part.arguments["filters"] = build_filter(filters, vocabulary)
    search = part.build()
    # settings of that name, or a search without them
    with naming("decoding must leave the model and the context to the captioner"):
        inspect.signature(search).bind("model", "context")
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
