"""Two artificial languages: the translation by hand, and the alignment of every word."""

from experiments.two_languages.artificial_languages import TwoLanguages, translation


def test_by_hand():
    source = ["a", "small", "red", "circle", "is", "above", "an", "orange", "square"]
    assert translation(source) == (
        ("erauqs", "egnaro", "elcric", "der", "llams", "si", "evoba"),
        [8, 7, 3, 2, 1, 4, 5],
    )


def test_pairs_follow_from_the_numbers_and_every_word_has_its_source():
    reader = TwoLanguages(train=40, val=7, test=11)
    splits = reader()
    assert splits == reader() != TwoLanguages(train=40, val=7, test=11, seed=1)()
    assert [len(examples) for examples in splits.values()] == [40, 7, 11]
    for example in (*splits["train"], *splits["val"], *splits["test"]):
        target, sources = translation(example.source)
        assert example.references[0].words == target
        assert [example.source[number][::-1] for number in sources] == list(target)
        assert len(set(sources)) == len(sources)
        left = [word for number, word in enumerate(example.source) if number not in sources]
        assert {*left} <= {"a", "an", "the", "one"}
    assert not {one.source for one in splits["train"]} & {one.source for one in splits["test"]}
