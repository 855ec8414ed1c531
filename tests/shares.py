"""Images that a share or a list chooses, by their ids."""

from captioning.data.columns import digests
from captioning.data.readers import reading


def choose(part, ids, source):
    names = list(map(str, ids))
    return [ids[place] for place in reading.choose(part, digests(names), lambda: names, source)]
