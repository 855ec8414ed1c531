"""The search that a configuration names: its settings checked, its words turned into ids."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from captioning.bounds import shown
from captioning.data.vocabulary import Vocabulary
from captioning.decoding import check_limits
from captioning.errors import CaptioningError, did_you_mean
from captioning.signatures import check_settings, check_value
from captioning.tokens import UNK

USUAL_FILTERS = "captioning.decoding.Filters"


def check_decoding(config: DictConfig) -> None:
    """Refuses what search or model would only refuse at some photograph.

    Raises:
        CaptioningError: says what is allowed.
    """
    decoding: dict[str, Any] = OmegaConf.to_container(config.decoding, resolve=True)  # type: ignore[assignment]
    select = decoding.pop("select", None)
    filters = decoding.get("filters")
    words: Mapping[str, list[Any]] = {}
    if isinstance(filters, dict) and filters.get("_target_") == USUAL_FILTERS:
        words = _words(filters)
        decoding["filters"] = {name: value for name, value in filters.items() if name not in words}
    _check_search("decoding.", decoding)
    if select is not None:
        _check_select(select, decoding)
    longest, limit = decoding.get("max_length", 1), config.model.get("max_tokens")
    if limit is not None and longest > limit:
        raise CaptioningError(
            f"decoding.max_length={longest} is longer than what this model was built for, model.max_tokens={limit}: "
            f"set decoding.max_length={limit} or less"
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
            f"decoding.select={shown(select)} is not allowed; it must be a list of different widths, or null"
        )
    for width in widths:
        _check_search(f"decoding.select={shown(select)}: ", {**decoding, "width": width})


def search_settings(decoding: DictConfig, vocabulary: Vocabulary) -> DictConfig:
    """The settings of the search itself: without `select`, and where filters name words, with their ids.

    A forbidden word that no caption can hold anyway is left out.

    Raises:
        CaptioningError: no caption can begin with the prefix, because the model does not know a word of it.
    """
    decoding = OmegaConf.create({name: value for name, value in decoding.items() if name != "select"})
    filters = decoding.get("filters")
    if filters is None:
        return decoding
    for word in filters.get("prefix") or ():
        if vocabulary.encode([word]) == [UNK]:
            hint = did_you_mean(str(word), vocabulary.words)
            raise CaptioningError(f"decoding.filters.prefix: the model does not know the word {word}.{hint}")
    for name in ("prefix", "forbidden"):
        if filters.get(name):
            filters[name] = [i for i in vocabulary.encode(map(str, filters[name])) if i != UNK]
    return decoding


def settings_given(settings: Mapping[Any, Any]) -> dict[Any, Any]:
    """The settings of a command that are not null, and so take the place of a run's."""
    pairs = ((key, settings_given(value) if isinstance(value, Mapping) else value) for key, value in settings.items())
    return {key: value for key, value in pairs if value is not None and value != {}}
