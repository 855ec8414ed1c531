"""The search that a configuration names: its settings checked, its words turned into ids."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from annotated_types import Interval, MinLen

from captioning.config.registry import build, check_parts, defaults
from captioning.config.types import Count, check_value
from captioning.data.vocabulary import Vocabulary
from captioning.decoding import Caption, check_limits
from captioning.errors import CaptioningError, did_you_mean, quoted
from captioning.tokens import UNK

USUAL_FILTERS = "captioning.decoding.Filters"
WORDS: Mapping[str, Any] = {**dict.fromkeys(("prefix", "forbidden"), list[str | int | float]), "no_bad_ending": bool}
"""Settings of the usual filters that become ids of words."""
LONGEST = 100
OF_OTHERS: Mapping[str, Any] = {
    **dict.fromkeys(("width", "groups", "n_best", "n"), Annotated[int, Interval(ge=1, le=32)]),
    "max_length": Annotated[int, Interval(ge=1, le=LONGEST)],
}
"""Bounds of what a checkpoint or a visitor may ask for: more could take all of the machine."""


def check_own(decoding: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse a checkpoint's own search where it takes more than a stranger's may, unless the user asked for it."""
    for name in (name for name in OF_OTHERS if name in decoding and name not in given):
        try:
            check_value(f"decoding.{name}", decoding[name], OF_OTHERS[name])
        except CaptioningError as error:
            error.add_note(f"the checkpoint's search is too large; set decoding.{name}=NUMBER yourself")
            raise


def check_decoding(decoding: Mapping[str, Any], max_tokens: int | None) -> None:
    """Refuse settings of a search that cannot work together, or with a model that reads at most `max_tokens`."""
    select = decoding.get("select")
    decoding = {name: value for name, value in decoding.items() if name != "select"}
    filters, prefix = decoding.get("filters"), []
    if isinstance(filters, dict) and filters.get("_target_") == USUAL_FILTERS:
        _check_words(filters)
        prefix = filters.get("prefix", [])
        decoding["filters"] = {name: value for name, value in filters.items() if name not in WORDS}
    check_parts("decoding", decoding)
    if select is not None:
        check_value("decoding.select", select, Annotated[list[Count], MinLen(1)])
        if len(set(select)) < len(select):
            raise CaptioningError(f"decoding.select={quoted(select)} must be a list of different widths, or null")
        if "width" not in decoding:
            raise CaptioningError("decoding.select needs a search with decoding.width, such as decoding=beam")
    for width in select or [decoding.get("width", 1)]:
        numbers = {name: decoding[name] for name in ("groups", "n_best") if isinstance(decoding.get(name), int)}
        try:
            check_limits(width=width, **numbers)
        except ValueError as error:
            raise CaptioningError(f"decoding.{error}") from error
    longest = decoding.get("max_length", 1)
    if isinstance(max_tokens, int) and longest > max_tokens:
        raise CaptioningError(
            f"decoding.max_length={longest} is longer than what this model was built for, "
            f"model.max_tokens={max_tokens}: set decoding.max_length={max_tokens} or less"
        )
    if len(prefix) > longest:
        raise CaptioningError(
            f"decoding.filters.prefix has {len(prefix)} words, more than decoding.max_length={longest}"
        )


def _check_words(filters: Mapping[str, Any]) -> None:
    for name in WORDS.keys() & filters.keys():
        check_value(f"decoding.filters.{name}", filters[name], WORDS[name])


def same_search(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two decodings rank the same captions by the same scores, however many alternatives they give."""
    return one.get("_target_") == other.get("_target_") and _in_full(one) == _in_full(other)


def _in_full(decoding: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide on captions, with the defaults of those that are left out."""
    usual = defaults("", {"_target_": decoding["_target_"]})
    settings = {name.removeprefix("."): value for name, value in usual.items()} | dict(decoding)
    filters = settings.get("filters") or {}
    if isinstance(filters, Mapping) and filters.get("_target_", USUAL_FILTERS) == USUAL_FILTERS:
        # those that forbid nothing are 0, false or empty
        settings["filters"] = {name: value for name, value in filters.items() if value and name != "_target_"}
    return {name: value for name, value in settings.items() if name not in ("select", "n_best", "_partial_")}


def search_settings(decoding: Mapping[str, Any], vocabulary: Vocabulary) -> dict[str, Any]:
    """The settings of the search itself: without `select`, and with ids in place of the words of filters.

    A forbidden word that no caption can hold anyway is left out.
    """
    search = {name: value for name, value in decoding.items() if name != "select"}
    if not isinstance(search.get("filters"), Mapping):
        return search
    filters = dict(search["filters"])
    if filters.get("_target_") == USUAL_FILTERS:
        _check_words(filters)
        filters["no_bad_ending"] = _bad_endings(vocabulary) if filters.get("no_bad_ending") else []
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
    """
    search: Callable[..., list[Caption]] = build("decoding", search_settings(decoding, vocabulary), modules)
    check_decoding(decoding, max_tokens)
    return search
