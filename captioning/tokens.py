"""The four token ids that are not words; every vocabulary begins with them."""

PAD, BOS, EOS, UNK = range(4)
NAMES = ("<pad>", "<bos>", "<eos>", "<unk>")
