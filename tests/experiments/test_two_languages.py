"""Two artificial languages: the translation by hand, and the alignment of every word."""

from experiments.two_languages.artificial_languages import TwoLanguages, translation


def test_by_hand() -> None:
    source = ["a", "small", "red", "circle", "is", "above", "an", "orange", "square"]
    assert translation(source) == (
        ("erauqs", "egnaro", "elcric", "der", "llams", "si", "evoba"),
        [8, 7, 3, 2, 1, 4, 5],
    )


def test_pairs_follow_from_the_numbers_and_every_word_has_its_source() -> None:
    reader = TwoLanguages(train=40, val=7, test=11)
    splits = reader()
    assert splits == reader() != TwoLanguages(train=40, val=7, test=11, seed=1)()
    assert {name: len(examples) for name, examples in splits.items()} == {
        "train": 40,
        "val": 7,
        "test": 11,
    }
    for example in (each for examples in splits.values() for each in examples):
        target, places = translation(example.source)
        assert example.references[0].words == target
        assert [example.source[place][::-1] for place in places] == list(target)
        assert len(set(places)) == len(places)
        left = [word for place, word in enumerate(example.source) if place not in places]
        assert {*left} <= {"a", "an", "the", "one"}
    assert not {each.source for each in splits["train"]} & {each.source for each in splits["test"]}
