"""Captions of a scene: five phrasings of the same facts, with the position of every shape noun.

The lexicon is closed: the colours, shapes and sizes of `scene` and the words below. A phrasing is a
template of plain words and the following marks, where capitals are the scene's things in order:

    A      the thing with its article            "a small red circle"
    -A     the thing without article             "small red circle"
    A:B    where A is, seen from B               "left of", "below"
    A@B    the same after "B with A"             "on its left", "below it"
    A>C    the direction from A to C             "left to right", "top to bottom"
    @A     where A is in the picture             "at the top left"

Sizes are named in scenes of at most two things, except "medium".
"""

import re
from dataclasses import dataclass
from random import Random

import yaml

from captioning.data.shapes.scene import Scene, Thing, relation
from captioning.files import packaged_text

REFERENCES = 5
_WORDING = yaml.safe_load(packaged_text(__package__, "phrases.yaml"))
TEMPLATES, RELATIONS, PLACES = _WORDING.values()
_MARK = re.compile(r"(?P<a>[A-D])?(?P<sign>[-@:>])?(?P<b>[A-D])?")


@dataclass(frozen=True)
class Phrase:
    """A caption, and the word position and thing of each shape noun."""

    text: str
    nouns: tuple[tuple[int, Thing], ...]


def phrases(scene: Scene, rng: Random) -> list[Phrase]:
    """Describe `scene` in `REFERENCES` different phrasings, in random order."""
    return [_fill(template, scene) for template in rng.sample(TEMPLATES[scene.layout], REFERENCES)]


def article(word: str) -> str:
    """Return "a" or "an"."""
    return "an" if word[0] in "aeiou" else "a"


def _fill(template: str, scene: Scene) -> Phrase:
    names = dict(zip("ABCD", scene.things, strict=False))
    words = []
    nouns = []
    for token in template.split():
        mark = _MARK.fullmatch(token)
        if mark is None:
            words.append(token)
            continue
        a, b = names.get(mark["a"]), names.get(mark["b"])
        if a and b:
            words += RELATIONS[mark["sign"]][str(relation(a, b))].split()
        elif b and mark["sign"] == "@":
            words += PLACES[int(3 * b.y)][int(3 * b.x)].split()
        else:
            thing = a or b
            assert thing is not None, template
            name = [thing.size] if len(names) <= 2 and thing.size != "medium" else []
            name += [thing.colour, thing.shape]
            if a:
                name.insert(0, article(name[0]))
            words += name
            nouns.append((len(words) - 1, thing))
    return Phrase(" ".join(words), tuple(nouns))
