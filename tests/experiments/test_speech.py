"""Drawn speech, judged from its features and words alone."""

import numpy as np
from support import contents

from captioning.data.columns import data_digest
from experiments.speech.drawn_speech import SpeechReader

SIZES = {"train": 40, "val": 3, "test": 5}


def features(example):
    return np.load(example.path).astype(float)


def words(example):
    (reference,) = example.references
    assert reference.text.split() == [*reference.words]
    return reference.words


def test_lengths_and_places(tmp_path):
    settings = {**SIZES, "phones": [2, 4], "frames": [3, 5], "dim": 7}
    reader = SpeechReader(tmp_path, **settings)
    splits = reader()
    examples = [example for split in splits.values() for example in split]
    assert {name: len(split) for name, split in splits.items()} == SIZES
    for example in examples:
        array, count = features(example), len(words(example))
        assert 2 <= count <= 4
        assert array.shape[1] == 7
        assert 3 * count <= len(array) <= 5 * count
    assert {len(words(example)) for example in examples} == {2, 3, 4}
    kept = contents(tmp_path)
    assert data_digest(reader()) == data_digest(splits)
    other = SpeechReader(tmp_path, **settings, seed=1)()  # in the same folder
    assert [words(one) for one in other["train"]] != [words(one) for one in splits["train"]]
    assert kept.items() <= contents(tmp_path).items()


def test_phones_are_heard_in_the_frames(tmp_path):
    """Without noise, a phone of as many frames is always the same and unlike others; noise has its
    deviation.
    """
    settings = {**SIZES, "phones": [3, 3], "frames": [6, 6]}
    clean, noisy = (
        SpeechReader(tmp_path, **settings, noise=noise)()["train"] for noise in (0.0, 0.5)
    )
    assert [*map(words, clean)] == [*map(words, noisy)]
    heard = {}
    for example in clean:
        for word, part in zip(words(example), features(example).reshape(3, 6, -1), strict=True):
            np.testing.assert_array_equal(heard.setdefault(word, part), part)
    assert len({part.tobytes() for part in heard.values()}) == len(heard) > 12
    pairs = zip(clean, noisy, strict=True)
    noise = np.concatenate([features(one) - features(other) for one, other in pairs])
    assert abs(noise.std() - 0.5) < 0.02
