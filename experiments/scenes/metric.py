"""Hallucination in captions of drawn scenes, as a metric of one's own.

It is exact, because each reference of a scene names all that is in it.

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain

from captioning.errors import CaptioningError, quoted
from captioning.metrics import score_called
from captioning.metrics.metric import Images, Metric, Texts, first_pairs
from captioning.metrics.statistics import MetricResult
from experiments.scenes.parsing import OPPOSITE, CaptionContent, parse

OF_IMAGES = ("false captions", "absent objects", "objects left out")
NAMES = (
    "false captions",
    "absent objects",
    "absent colours",
    "absent shapes",
    "wrong sizes",
    "wrong places",
    "wrong relations",
    "too many objects",
    "too few objects",
    "objects left out",
)
SIZED = 2
"""Largest number of things of a scene whose captions name sizes."""


@dataclass(frozen=True)
class SceneGraph:
    """What is in a scene; its things are called by colour and shape, such as "red circle"."""

    things: dict[str, str]  # and their sizes, empty where captions do not name them
    # directions in which the first is, seen from the second
    relations: dict[tuple[str, str], set[str]]
    location: str  # in the picture, of a single thing


@lru_cache(maxsize=10_000)
def scene_of(references: tuple[str, ...]) -> SceneGraph | None:
    """Read a scene from its references; None if they do not describe one, or not all of it."""
    parsed = [parse(text) for text in references]
    things = {thing.text: thing.size for content in parsed for thing in content.things}
    if not things or not all(_names_all(content, things) for content in parsed):
        return None
    if len(things) == 1:
        locations = {location for content in parsed for _, location in content.locations}
        if len(locations) != 1 or not all(content.locations for content in parsed):
            return None
        return SceneGraph(things, {}, locations.pop())
    stated = _stated_relations(parsed)
    pairs = [(a, b) for a in things for b in things if a != b]
    relations = {pair: stated[pair] or _by_way_of_others(*pair, stated) for pair in pairs}
    return SceneGraph(things, relations, "") if all(relations.values()) else None


def _names_all(content: CaptionContent, things: Mapping[str, str]) -> bool:
    """Whether a reference names each thing of its scene once, with its size, and nothing else."""
    whole = [thing for thing in content.things if thing.is_whole]
    named = {thing.text: thing.size for thing in whole}
    return not content.strange and named == things and len(named) == len(content.things)


def _stated_relations(parsed: Sequence[CaptionContent]) -> dict[tuple[str, str], set[str]]:
    """The directions that references state, both ways, without alternatives."""
    stated: dict[tuple[str, str], set[str]] = defaultdict(set)
    for content in parsed:
        for alternative, *others in content.statements:
            if others:
                continue
            for a, direction, b in alternative:
                pair = content.things[a].text, content.things[b].text
                stated[pair].add(direction)
                stated[pair[::-1]].add(OPPOSITE[direction])
    return stated


def _by_way_of_others(a: str, b: str, stated: dict[tuple[str, str], set[str]]) -> set[str]:
    """Directions that follow from those of a third thing."""
    return {
        way
        for (start, middle), ones in list(stated.items())
        if start == a
        for d in ones
        for e in stated[middle, b]
        if e != OPPOSITE[d]
        for way in (d, e)
    }


class DrawnScenes(Metric):
    """Hallucination in captions of drawn scenes."""

    name = "hallucination"
    scores = tuple(map(score_called, NAMES))
    tokenized = False
    fields: Mapping[str, object] = {"truth": "drawn scenes"}

    def compute(self, captions: Texts, references: Texts, images: Images = None) -> MetricResult:
        judgements = []
        for caption, texts in first_pairs(captions, references):
            scene = scene_of(tuple(texts))
            if scene is None:
                raise CaptioningError(
                    f"metrics={self.name} judges captions of drawn scenes, and these references "
                    f"do not describe one: {quoted(texts)}"
                )
            judgements.append(evaluate(scene, parse(caption)))
        counts, hallucinated = zip(*judgements, strict=True)
        result = MetricResult.from_shares(NAMES, counts)
        of_images = {name: result.per_image[name] for name in OF_IMAGES}
        return replace(result, per_image=of_images, hallucinated=[*hallucinated])


def evaluate(scene: SceneGraph, content: CaptionContent) -> tuple[list[tuple[int, int]], list[str]]:
    """Return M pairs, how many are wrong and of how many, and the absent objects."""
    true, names = scene.things, [thing.text for thing in content.things]
    # a caption that names a thing again says that there is another one
    there = [name in true and name not in names[:n] for n, name in enumerate(names)]
    whole = [(n, thing.text) for n, thing in enumerate(content.things) if thing.is_whole]
    absent = [name for n, name in whole if not there[n]]
    judged = _judged(scene, content, there)
    untrue = [(len(absent), len(whole)), *((each.count(False), len(each)) for each in judged)]
    untrue.append((int(len(names) > len(true)), 1))
    is_false = int(any(wrong for wrong, _ in untrue))
    left_out = len(true) - sum(there), len(true)
    counts = [(is_false, 1), *untrue, (int(len(names) < len(true)), 1), left_out]
    return counts, list(dict.fromkeys(absent))


def _judged(
    scene: SceneGraph, content: CaptionContent, there: Sequence[bool]
) -> tuple[list[bool], ...]:
    """Whether each colour, shape, size, place and statement of a caption is true.

    Sizes, places and statements count of things which are `there`, and a statement is true in one
    of its alternatives.
    """
    true, things = scene.things, content.things
    colours, shapes = zip(*(text.split() for text in true), strict=True)
    sizes, statements = [], []
    for thing, is_there in zip(things, there, strict=True):
        if is_there and thing.size and len(true) <= SIZED:
            sizes.append(thing.size == true[thing.text])
    for statement in content.statements:
        if all(there[a] and there[b] for a, _, b in chain(*statement)):
            statements.append(any(_holds(scene, content, facts) for facts in statement))
    places = [place for thing, place in content.locations if scene.location and there[thing]]
    return (
        [thing.colour in colours for thing in things if thing.colour],
        [thing.shape in shapes for thing in things if thing.shape],
        sizes,
        [place == scene.location for place in places],
        statements,
    )


def _holds(
    scene: SceneGraph, content: CaptionContent, facts: Iterable[tuple[int, str, int]]
) -> bool:
    """Whether all relations of an alternative are those of the scene."""
    names = [thing.text for thing in content.things]
    return all(direction in scene.relations[names[a], names[b]] for a, direction, b in facts)
