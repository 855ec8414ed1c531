"""The four token ids that are not words.

Every vocabulary begins with them. `FROM_CHECKPOINT` stands for the words of a checkpoint.
"""

PAD, BOS, EOS, UNK = range(4)
NAMES = ("<pad>", "<bos>", "<eos>", "<unk>")
FROM_CHECKPOINT = "checkpoint"
"""In place of a vocabulary's settings: its words are those of `init_from`."""
