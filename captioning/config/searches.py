"""The search that a configuration names: its settings checked, its words turned into ids."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from annotated_types import Interval

from captioning.config.registry import build
from captioning.config.signatures import check_settings, check_value, defaults
from captioning.data.vocabulary import Vocabulary
from captioning.decoding import Caption, check_limits
from captioning.errors import CaptioningError, did_you_mean, quoted
from captioning.tokens import UNK

USUAL_FILTERS = "captioning.decoding.Filters"
BAD_ENDING = "no_bad_ending"
"""Their setting that is true or false, and becomes the ids of `BAD_ENDINGS`."""
LONGEST = 100
OF_OTHERS: Mapping[str, Any] = {
    **dict.fromkeys(("width", "groups", "n_best", "n"), Annotated[int, Interval(ge=1, le=32)]),
    "max_length": Annotated[int, Interval(ge=1, le=LONGEST)],
}
"""Bounds of what a checkpoint or a visitor may ask for: more could take all of the machine."""


def check_own(decoding: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuses a checkpoint's own search where it takes more than another's may, and the user has not asked for it.

    Raises:
        CaptioningError: says what is allowed, and how to ask for more.
    """
    for name in (name for name in OF_OTHERS if name in decoding and name not in given):
        try:
            check_value(f"decoding.{name}", decoding[name], OF_OTHERS[name])
        except CaptioningError as error:
            raise CaptioningError(
                f"{error} in a checkpoint; what its search shall have is set with decoding.{name}=NUMBER in predict "
                "and evaluate"
            ) from error


def check_decoding(decoding: Mapping[str, Any], max_tokens: int | None) -> None:
    """Refuses what search or model would only refuse at some photograph.

    Args:
        decoding: plain settings.
        max_tokens: the longest caption that the model can read, if it has such a limit.

    Raises:
        CaptioningError: says what is allowed.
    """
    select = decoding.get("select")
    decoding = {name: value for name, value in decoding.items() if name != "select"}
    filters = decoding.get("filters")
    words: Mapping[str, list[Any]] = {}
    if isinstance(filters, dict) and filters.get("_target_") == USUAL_FILTERS:
        words = _words(filters)
        decoding["filters"] = {name: value for name, value in filters.items() if name not in (*words, BAD_ENDING)}
    _check_search("decoding.", decoding)
    if select is not None:
        _check_select(select, decoding)
    longest = decoding.get("max_length", 1)
    if isinstance(max_tokens, int) and longest > max_tokens:
        raise CaptioningError(
            f"decoding.max_length={longest} is longer than what this model was built for, "
            f"model.max_tokens={max_tokens}: set decoding.max_length={max_tokens} or less"
        )
    if len(words.get("prefix", ())) > longest:
        raise CaptioningError(
            f"decoding.filters.prefix has {len(words['prefix'])} words, more than decoding.max_length={longest}"
        )


def _words(filters: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The settings of the usual filters that are words, and become the ids that these take."""
    words = {name: filters[name] for name in ("prefix", "forbidden") if name in filters}
    for name, value in words.items():
        check_value(f"decoding.filters.{name}", value, list[str | int | float])
    check_value(f"decoding.filters.{BAD_ENDING}", filters.get(BAD_ENDING, False), bool)
    return words


def _check_search(key: str, decoding: Mapping[str, Any]) -> None:
    check_settings("decoding", decoding)
    numbers = {name: decoding[name] for name in ("width", "groups", "n_best") if isinstance(decoding.get(name), int)}
    try:
        check_limits(**numbers)
    except ValueError as error:
        raise CaptioningError(f"{key}{error}") from error


def _check_select(select: Any, decoding: Mapping[str, Any]) -> None:
    widths = select if isinstance(select, list) else []
    if not widths or len(set(map(str, widths))) < len(widths):
        raise CaptioningError(
            f"decoding.select={quoted(select)} is not allowed; it must be a list of different widths, or null"
        )
    for width in widths:
        _check_search(f"decoding.select={quoted(select)}: ", {**decoding, "width": width})


def same_search(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two decodings rank the same captions by the same scores, however many alternatives they give.

    Args:
        one: settings.
        other: settings that a search has been built of.
    """
    return one.get("_target_") == other.get("_target_") and _in_full(one) == _in_full(other)


def _in_full(decoding: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide of captions, those that are left out as they are then."""
    usual = defaults("", {"_target_": decoding["_target_"]})
    settings = {name.removeprefix("."): value for name, value in usual.items()} | dict(decoding)
    filters = settings.get("filters") or {}
    if isinstance(filters, Mapping) and filters.get("_target_", USUAL_FILTERS) == USUAL_FILTERS:
        # those that forbid nothing are 0, false or empty
        settings["filters"] = {name: value for name, value in filters.items() if value and name != "_target_"}
    return {name: value for name, value in settings.items() if name not in ("select", "n_best", "_partial_")}


def search_settings(decoding: Mapping[str, Any], vocabulary: Vocabulary) -> dict[str, Any]:
    """The settings of the search itself: without `select`, and where filters name words, with their ids.

    A forbidden word that no caption can hold anyway is left out.

    Raises:
        CaptioningError: no caption can begin with the prefix, because the model does not know a word of it.
    """
    search = {name: value for name, value in decoding.items() if name != "select"}
    if not isinstance(search.get("filters"), Mapping):
        return search
    filters = dict(search["filters"])
    if filters.get("_target_") == USUAL_FILTERS:
        _words(filters)
        filters[BAD_ENDING] = _bad_endings(vocabulary) if filters.get(BAD_ENDING) else []
    for word in filters.get("prefix") or ():
        if vocabulary.encode([word]) == [UNK]:
            hint = did_you_mean(str(word), vocabulary.words)
            raise CaptioningError(f"decoding.filters.prefix: the model does not know the word {word}.{hint}")
    for name in ("prefix", "forbidden"):
        if filters.get(name):
            filters[name] = [i for i in vocabulary.encode(map(str, filters[name])) if i != UNK]
    return search | {"filters": filters}


def _bad_endings(vocabulary: Vocabulary) -> list[int]:
    from captioning.metrics.wording import BAD_ENDINGS  # here, because it imports all metrics

    return [i for i in vocabulary.encode(sorted(BAD_ENDINGS)) if i != UNK]


def build_search(
    decoding: Mapping[str, Any], vocabulary: Vocabulary, max_tokens: int | None, modules: Sequence[str] = ()
) -> Callable[..., list[Caption]]:
    """The search over a model's captions that plain settings describe.

    Args:
        decoding: the settings.
        vocabulary: of the words in them.
        max_tokens: the longest caption that the model can read, if it has such a limit.
        modules: of the user, whose searches and filters may be named too.

    Raises:
        CaptioningError: says what is allowed.
    """
    search: Callable[..., list[Caption]] = build("decoding", search_settings(decoding, vocabulary), modules)
    check_decoding(decoding, max_tokens)
    return search
