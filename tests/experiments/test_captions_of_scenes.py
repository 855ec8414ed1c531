"""The parser of captions of scenes: forms of every layout by hand, and captions that break off or
stumble.
"""

import pytest

from experiments.scenes.parsing import parse

A, B, C, D = "small red circle", "blue star", "green cross", "large pink square"
FORMS = {
    f"there is a {A} at the top left": "0 at the top left",
    f"at the bottom there is a {A}": "0 at the bottom",
    f"a {A} is left of a {B}": "0 left 1",
    f"a {A} with a {B} above it": "1 above 0",
    f"below a {A} is a {B}": "1 below 0",
    f"the {A} is right of the {B} and below the {C}": "0 right 1, 0 below 2",
    f"left of a {A} and above a {B} is a {C}": "2 left 0, 2 above 1",
    f"{A} with {B} on its left and {C} below it": "1 left 0, 2 below 0",
    f"a {A} above a {B} and a {C}": "0 above 1 & 0 above 2",
    f"{A} then {B} then {C} from left to right": "0 left 1 & 0 left 2 & 1 left 2",
    f"{A} and {B} are above {C} and {D}": "0 above 2 & 1 above 3",
    f"{A} left of {B} and {C} left of {D}": "0 left 1, 2 left 3",
    # broken off, and with words of another place
    f"a {A} left of a": "",
    f"a {A} left of a {B} and above": "0 left 1",
    f"a {A} left of left of a {B}": "",
    f"a {A} on the center": "",
    "": "",
}


def written(caption):
    """Statements in one line: `&` joins what holds together."""
    said = parse(caption)
    statements = [[f"{a} {d} {b}" for a, d, b in triples] for (triples,) in said.statements]
    return ", ".join(
        [
            *(" & ".join(each) for each in statements),
            *(f"{thing} {place}" for thing, place in said.locations),
        ]
    )


@pytest.mark.parametrize("caption, expected", FORMS.items())
def test_forms_by_hand(caption, expected):
    assert written(caption) == expected
    assert written(f"{caption.upper()}.") == expected


def test_between_is_either_way_round_in_any_direction():
    for caption, (one, it, other) in {
        f"a {B} is between a {A} and a {C}": (1, 0, 2),
        f"a {B} between a {A} and a {C}": (1, 0, 2),
        f"between a {A} and a {C} is a {B}": (0, 2, 1),
    }.items():
        (alternatives,) = parse(caption).statements
        ways = [[(one, way, it), (it, way, other)] for way in ("left", "right", "above", "below")]
        assert sorted(map(sorted, alternatives)) == sorted(map(sorted, ways))


def test_things_are_named_by_size_colour_and_shape_as_far_as_they_are():
    said = parse(f"a {D} above a red and a star with {B} left of small of a dog")
    assert [(thing.size, thing.colour, thing.shape) for thing in said.things] == [
        *(("large", "pink", "square"), ("", "red", ""), ("", "", "star"), ("", "blue", "star"))
    ]
    assert said.strange
    assert not parse(f"the one {A} there is then from").strange
