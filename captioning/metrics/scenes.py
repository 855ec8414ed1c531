"""Hallucination in captions of drawn scenes, exact, because each reference of a scene names all
that is in it.

B images, M scores. All that is known of a scene is read from its references, so that recorded
captions can be scored again. A caption is then held against it, statement by statement:

    false captions      captions with anything false: of what follows, all but the last two
    absent objects      objects named, that is pairs of colour and shape, beyond those in the scene
    absent colours      colours named that nothing in the scene has
    absent shapes       shapes named that nothing in the scene has
    wrong sizes         sizes named of objects that are there, in scenes of one or two
    wrong places        places in the picture named of the object of a scene of one
    wrong relations     relations named of objects that are there, such as "left of" and "between"
    too many objects    captions that name more objects than there are
    too few objects     captions that name fewer
    objects left out    objects of the scene that the caption does not name

Each is the percentage of those that are judged: (D) what is said of an object that is not there
counts once, as an absent object, and its place and relations are not judged. (D) Of two objects
that are diagonal to each other, each of the two directions holds.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from captioning.data.shapes.parsing import OPPOSITE, Said, Statement, parse
from captioning.metrics.signature import sign
from captioning.metrics.statistics import Computed, shares

NAMES = (
    *(
        "false captions",
        "absent objects",
        "absent colours",
        "absent shapes",
        "wrong sizes",
        "wrong places",
    ),
    *("wrong relations", "too many objects", "too few objects", "objects left out"),
)
OF_IMAGES = ("false captions", "absent objects", "objects left out")
SIZED = 2
"""Largest number of things of a scene whose captions name sizes."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of a scene; its things are called by colour and shape, such as "red circle"."""

    things: dict[str, str]  # and their sizes, empty where captions do not name them
    relations: dict[
        tuple[str, str], set[str]
    ]  # directions in which the first is, seen from the second
    place: str  # in the picture, of a single thing


def facts_of(references: Sequence[str]) -> Facts | None:
    """Read a scene from its references; None if they do not describe one, or not all of it."""
    said = [parse(text) for text in references]
    things = {thing.text: thing.size for each in said for thing in each.things}
    for each in said:
        named = {thing.text: thing.size for thing in each.things if thing.colour and thing.shape}
        if each.strange or named != things or len(named) < len(each.things):
            return None
    if len(things) == 1:
        places = {place for each in said for _, place in each.places or [(0, "")]}
        return Facts(things, {}, *places) if len(places) == 1 and places != {""} else None
    stated: dict[tuple[str, str], set[str]] = defaultdict(set)
    for each in said:
        for alternative, *others in each.statements:
            for a, direction, b in alternative if not others else ():
                pair = each.things[a].text, each.things[b].text
                stated[pair].add(direction)
                stated[pair[::-1]].add(OPPOSITE[direction])
    pairs = [(a, b) for a in things for b in things if a != b]
    relations = {pair: stated[pair] or _by_way_of_others(*pair, stated) for pair in pairs}
    return Facts(things, relations, "") if things and all(relations.values()) else None


def _by_way_of_others(a: str, b: str, stated: dict[tuple[str, str], set[str]]) -> set[str]:
    """Directions that follow from those of a third thing."""
    steps = [
        (one, stated[middle, b]) for (start, middle), one in list(stated.items()) if start == a
    ]
    return {
        way
        for ones, others in steps
        for d in ones
        for e in others
        if e != OPPOSITE[d]
        for way in (d, e)
    }


class DrawnScenes:
    """Hallucination in captions of drawn scenes."""

    name = "hallucination"

    def __init__(self, scenes: Sequence[Facts]) -> None:
        self._scenes = scenes
        self.signature = sign(self.name, {"truth": "drawn scenes"})

    @classmethod
    def of(cls, references: Sequence[Sequence[str]]) -> "list[DrawnScenes]":
        """The metric of images whose references all describe drawn scenes; none of other images."""
        scenes = []
        for texts in references:
            facts = facts_of(texts)
            if facts is None:  # at the first photograph
                return []
            scenes.append(facts)
        return [cls(scenes)] if scenes else []

    def __call__(self, positions: Sequence[int], captions: Sequence[str]) -> Computed:
        """Score the captions of the images at these positions."""
        pairs = [
            (self._scenes[place], parse(text))
            for place, text in zip(positions, captions, strict=True)
        ]
        judgements = [judged(*pair) for pair in pairs]
        counts = np.array([each for each, _ in judgements], dtype=np.float64)  # [B, M, 2]
        found = shares(NAMES, counts[..., 0], counts[..., 1])
        of_images = {name: found.per_image[name] for name in OF_IMAGES}
        return replace(
            found, per_image=of_images, hallucinated=[absent for _, absent in judgements]
        )


def judged(scene: Facts, said: Said) -> tuple[list[tuple[int, int]], list[str]]:
    """Return M pairs, how many are wrong and of how many, and the absent objects."""
    colours, shapes = zip(*(text.split() for text in scene.things), strict=True)
    names = [thing.text for thing in said.things]
    # a caption that names a thing again says that there is another one
    there = [name in scene.things and name not in names[:place] for place, name in enumerate(names)]
    objects = [place for place, thing in enumerate(said.things) if thing.colour and thing.shape]
    absent = [names[place] for place in objects if not there[place]]
    sized = [
        place
        for place in objects
        if there[place] and said.things[place].size and len(scene.things) <= SIZED
    ]
    places = [place for thing, place in said.places if scene.place and there[thing]]
    relations = [
        _holds(scene, names, statement)
        for statement in said.statements
        if all(there[thing] for triples in statement for a, _, b in triples for thing in (a, b))
    ]
    found = [
        (len(absent), len(objects)),
        _strangers([thing.colour for thing in said.things], colours),
        _strangers([thing.shape for thing in said.things], shapes),
        (sum(said.things[place].size != scene.things[names[place]] for place in sized), len(sized)),
        (sum(place != scene.place for place in places), len(places)),
        (relations.count(False), len(relations)),
        (int(len(names) > len(scene.things)), 1),
    ]
    few = int(len(names) < len(scene.things))
    left_out = (len(scene.things) - sum(there), len(scene.things))
    return [(int(any(wrong for wrong, _ in found)), 1), *found, (few, 1), left_out], list(
        dict.fromkeys(absent)
    )


def _strangers(words: Sequence[str], known: Sequence[str]) -> tuple[int, int]:
    named = [word for word in words if word]
    return sum(word not in known for word in named), len(named)


def _holds(scene: Facts, names: Sequence[str], statement: Statement) -> bool:
    return any(
        all(direction in scene.relations[names[a], names[b]] for a, direction, b in triples)
        for triples in statement
    )
