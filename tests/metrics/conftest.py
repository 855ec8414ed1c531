"""A small corpus, its scores by `captioning.metrics`, and the processes that these started."""

import subprocess
from functools import cached_property

import pytest

from captioning.metrics import Scorer
from captioning.metrics.meteor import process_of

REFERENCES = [
    [
        "A man's dog runs across the green field.",
        "The dog is running; it looks happy!",
        "a dog outside",
    ],
    [
        "Two well-dressed people are standing in front of a bus",
        'A "no parking" sign next to two people.',
    ],
    [
        "A RED double-decker bus drives down the street...",
        "red bus (London) on a street",
        "The bus: big and red",
    ],
    ["A woman, wearing a hat, doesn't look at the camera", "Woman in hat -- looking away"],
    [
        "3 1/2 pizzas on a table at 7:30 p.m.",
        "Some pizza on a wooden table.",
        "Half-eaten pizza, $5.99",
    ],
    [
        "Children playing with a kite on the beach",
        "kids fly kites near the sea",
        "a beach & a kite",
    ],
    ["A café table with two croissants", "Two croissants on a plate in a café."],
    [
        "A cat sleeping on a laptop's keyboard",
        "the cat can't stay awake",
        "`Sleepy' cat on a computer",
    ],
    ["A train at the station in the U.S.", "Passengers are waiting for the train, which is late."],
    [
        "A skier jumps off a snowy hill",
        "someone skiing down a mountain",
        "A man in the air on skis!",
        "Ski jump",
    ],
    ["An elephant and its calf walk by the river", "Two elephants; one small, one large"],
    ["A kitchen with white cabinets and a black stove", "Kitchen [clean] with white cupboards"],
    ["A tennis player hits the ball with his racket", "He's about to hit a tennis ball"],
    ["Boats in the harbour at sunset", "the sun is setting over a harbor full of boats"],
]
CANDIDATES = [
    "A dog is running across a field.",
    'two people standing next to a "no parking" sign',
    "A red double-decker bus on the street",
    "A woman wearing a hat doesn't smile",
    "Pizza on a table",
    "a child flying a kite at the beach!",
    "a plate of croissants in a CAFÉ",
    "A cat on a keyboard -- sleeping",
    "a train, at a station",
    "the man is jumping on skis down the hill of snow in the air",
    "elephants walking by a river; one is small",
    "A bathroom",
    "he's hitting a ball",
    "boats boats boats boats in the harbor",
]


def record_processes(monkeypatch):
    """The commands of all processes started since, which do start."""
    commands = []
    start = subprocess.Popen.__init__

    def recorded(self, args, **settings):
        commands.append(list(args))
        start(self, args, **settings)

    monkeypatch.setattr(subprocess.Popen, "__init__", recorded)
    return commands


started = pytest.fixture(record_processes, name="started")


class Corpus:
    """Its scores by all metrics are computed when they are first asked for."""

    references, candidates = REFERENCES, CANDIDATES
    commands: list[list[str]]  # of processes that were started for them

    @cached_property
    def scores(self):
        with pytest.MonkeyPatch.context() as monkeypatch:
            self.commands = record_processes(monkeypatch)
            process_of.cache_clear()  # of the tests before
            return Scorer(REFERENCES).score(dict(enumerate(CANDIDATES)))


@pytest.fixture(scope="session")
def corpus():
    return Corpus()
