"""Subsets of the training images."""

from itertools import pairwise
from pathlib import Path

from refusals import refuses

from captioning.data.example import Example, Reference
from captioning.data.subset import training_subset

SETTINGS = {"train_images_seed": 0, "vocabulary_images": "subset"}


def splits(images):
    examples = [
        Example(i, Path(f"{i}.jpg"), (Reference(f"word{i}", (f"word{i}",)),)) for i in range(images)
    ]
    return {"train": examples, "val": examples[:1], "test": examples[1:2]}


def chosen(size, images=100, **settings):
    subset, _ = training_subset(splits(images), {**SETTINGS, "train_images": size, **settings})
    assert {name: len(examples) for name, examples in subset.items()} == {
        "train": size,
        "val": 1,
        "test": 1,
    }
    return [int(example.image_id) for example in subset["train"]]


def test_smaller_subsets_are_part_of_larger_ones_in_the_order_of_the_split():
    nested = [chosen(size) for size in (1, 10, 50, 100)]
    for smaller, larger in pairwise(nested):
        assert set(smaller) < set(larger)
    assert all(images == sorted(images) for images in nested)
    assert chosen(50, train_images_seed=1) != nested[2]


def test_a_subset_depends_on_ids_alone():
    given = splits(100)
    backwards = {**given, "train": given["train"][::-1]}
    subset, _ = training_subset(backwards, {**SETTINGS, "train_images": 30})
    assert [example.image_id for example in subset["train"]] == chosen(30)[::-1]


def test_images_are_drawn_evenly():
    # of 100 images, 20 with each of 200 seeds: 40 times each; hypergeometric sd 5.7
    counts = [0] * 100
    for seed in range(200):
        for image in chosen(20, train_images_seed=seed):
            counts[image] += 1
    assert min(counts) > 40 - 5 * 5.7
    assert max(counts) < 40 + 5 * 5.7


def test_the_vocabulary_is_of_the_subset_or_of_the_whole_split():
    settings = {**SETTINGS, "train_images": 2}
    subset, captions = training_subset(splits(5), settings)
    assert list(captions) == [e.references[0].words for e in subset["train"]]
    _, captions = training_subset(splits(5), {**settings, "vocabulary_images": "all"})
    assert list(captions) == [(f"word{i}",) for i in range(5)]


def test_a_split_without_as_many_images_is_refused():
    assert chosen(5, images=5) == list(range(5))
    with refuses(r"^data\.train_images=6"):
        chosen(6, images=5)
