import itertools
import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from captioning.data.loader import BucketSampler


def lengths(count, seed=0):
    rng = random.Random(seed)
    return [rng.randint(1, 14) for _ in range(count)]


def parts(count, batch_size, shuffle, world_size, epoch=0):
    """For each rank the positions of its batches."""
    ranks = []
    for rank in range(world_size):
        sampler = BucketSampler(
            lengths(count), batch_size, shuffle, seed=5, rank=rank, world_size=world_size
        )
        sampler.set_epoch(epoch)
        ranks.append([request.positions for request in sampler])
        assert len(sampler) == len(ranks[-1])
    return ranks


def flat(batches):
    return list(itertools.chain.from_iterable(batches))


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 70), st.integers(1, 7), st.integers(1, 4), st.booleans())
def test_ranks_share_the_batches_of_one_process(count, size, ranks, shuffle):
    (whole,) = parts(count, size * ranks, shuffle, 1)
    assert sorted(flat(whole)) == list(range(count))
    assert shuffle or flat(whole) == list(range(count))
    shared = parts(count, size, shuffle, ranks)
    for k, batch in enumerate(whole):
        pieces = [rank[k] for rank in shared if k < len(rank)]
        union = flat(pieces)
        if shuffle and len(batch) < ranks:
            assert [len(piece) for piece in pieces] == [
                1
            ] * ranks  # every process takes part in every step
            assert set(union) == set(batch)
        else:
            assert union == batch
            sizes = [len(piece) for piece in pieces] + [0] * (ranks - len(pieces))
            assert max(sizes) - min(sizes) <= 1
            assert max(sizes) <= size
    steps = {len(rank) for rank in shared}
    assert max(steps) == len(whole)
    if shuffle:
        assert steps == {len(whole)}


def test_order_changes_with_the_epoch_and_with_the_seed_and_comes_again():
    def order(seed, epoch):
        sampler = BucketSampler(lengths(100), 4, True, seed)
        sampler.set_epoch(epoch)
        first = flat([request.positions for request in sampler])
        assert flat([request.positions for request in sampler]) == first
        return first

    orders = [order(seed, epoch) for seed in (0, 1) for epoch in (0, 1, 2)]
    assert len({tuple(o) for o in orders}) == 6
    assert order(1, 2) == orders[-1]
    first, second = (
        {frozenset(batch) for batch in parts(400, 4, True, 1, epoch)[0]} for epoch in (0, 1)
    )
    assert len(first & second) < 10


def test_buckets_pad_little_and_long_batches_are_spread_over_the_epoch():
    words = lengths(1600)

    def padding(batches):
        return 1 - sum(words) / sum(len(batch) * max(words[i] for i in batch) for batch in batches)

    order = list(range(1600))
    random.Random(1).shuffle(order)
    bucketed = [request.positions for request in BucketSampler(words, 16, True)]
    assert padding([order[i : i + 16] for i in range(0, 1600, 16)]) > 0.35
    assert padding(bucketed) < 0.05
    longest = [max(words[i] for i in batch) for batch in bucketed]
    quarters = [sum(longest[i : i + 25]) / 25 for i in range(0, 100, 25)]
    assert max(quarters) - min(quarters) < 5


@settings(deadline=None, derandomize=True)
@given(
    st.integers(1, 900), st.integers(1, 5), st.integers(0, 3), st.sampled_from(["int32", "int64"])
)
def test_the_order_is_that_of_lists_of_batches(count, size, epoch, dtype):
    """Those that runs of earlier versions go on with."""
    words = np.array(lengths(count), dtype)
    draw = np.random.default_rng((7, epoch))
    order = np.arange(count)
    draw.shuffle(order)
    listed = []
    for start in range(0, count, 50 * size):
        bucket = sorted(order[start : start + 50 * size].tolist(), key=words.__getitem__)
        listed += [bucket[i : i + size] for i in range(0, len(bucket), size)]
    listed = [listed[i] for i in draw.permutation(len(listed))]

    sampler = BucketSampler(words, size, True, seed=7)
    done = len(listed) // 3
    for skipped in (0, done):
        sampler.resume(epoch, skipped)
        assert [request.positions for request in sampler] == listed[skipped:]
    sampler.set_epoch(epoch + 1)
    assert len(list(sampler)) == len(listed)
