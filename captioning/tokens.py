"""The four token ids that are not words, and words that no caption should end with.

Every vocabulary begins with the four. `FROM_CHECKPOINT` stands for the words of a checkpoint.
`experiments/onnx` copies this module beside its graphs.
"""

PAD, BOS, EOS, UNK = range(4)
NAMES = ("<pad>", "<bos>", "<eos>", "<unk>")
FROM_CHECKPOINT = "checkpoint"
"""In place of a vocabulary's settings: its words are those of `init_from`."""
BAD_ENDINGS = {
    "en": frozenset(
        "a an the in for at of with before after on upon near to is are am and".split()  # noqa: SIM905 - easier to read
    )
}
"""Words that no sentence ends with, by language (ruotianluo/self-critical.pytorch,
`captioning/models/AttModel.py`); "and" is our addition (D).
"""
