"""Tokenizers of others: kinds of steps, how far texts grow, and the trial in another process."""

import base64
import json

import pytest
from refusals import refuses
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from captioning.config.explain import is_expected
from captioning.pretrained import tokenizer
from captioning.pretrained.tokenizer import PATTERNS, open_tokenizer

LETTERS = sorted({*pre_tokenizers.ByteLevel.alphabet(), "▁"})
WORDS = {letter: i for i, letter in enumerate(["<s>", "</s>", "<unk>", *LETTERS])}
ENDS = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)
COLLAPSE = Regex(PATTERNS["T5, XLM-RoBERTa"])


def charsmap(letter, text):
    """A table of SentencePiece that replaces a letter of one byte by a text."""
    units = [0] * 512
    units[0] = 256 << 10  # from the root to the letter, and from there to unit 1, the text's place
    place = 256 ^ ord(letter)
    units[place] = (place ^ 1) << 10 | 1 << 8 | ord(letter)
    index = b"".join(unit.to_bytes(4, "little") for unit in units)
    return len(index).to_bytes(4, "little") + index + text.encode() + b"\0"


def made(normalizer=None, before=None, decoder=None, after=None, model=None):
    new = Tokenizer(model or models.BPE(WORDS, [], unk_token="<unk>"))
    new.normalizer, new.pre_tokenizer = normalizer, before
    new.decoder, new.post_processor = decoder, after
    return new


def several(*steps):
    return normalizers.Sequence(list(steps))


def split(pattern, how="isolated"):
    cut = pre_tokenizers.Split(pattern, how)
    return pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(False, use_regex=False)])


TABLE = normalizers.Precompiled(charsmap("j", "x" * 33))  # as long as the longest that is published
UNIGRAM = models.Unigram([(word, -1.0) for word in WORDS], 2)
PIECES = WORDS | {"##a": len(WORDS)}
BERT = models.WordPiece(PIECES, unk_token="<unk>")
MARK = pre_tokenizers.Metaspace()
FAMILIES = {
    "gpt2": made(None, BYTES, decoders.ByteLevel(), processors.ByteLevel(trim_offsets=False)),
    "llama3": made(
        None,
        split(Regex(PATTERNS["Llama 3"])),
        decoders.ByteLevel(),
        processors.Sequence([processors.ByteLevel(trim_offsets=False), ENDS]),
    ),
    "llama2": made(
        several(normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")),
        decoder=decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        ),
        after=ENDS,
    ),
    "qwen": made(normalizers.NFC(), split(Regex(PATTERNS["Qwen"])), decoders.ByteLevel(), ENDS),
    "clip": made(
        several(
            normalizers.NFC(),
            normalizers.Replace(Regex(PATTERNS["CLIP, blanks"]), " "),
            normalizers.Lowercase(),
        ),
        split(Regex(PATTERNS["CLIP"]), "removed"),
        decoders.ByteLevel(),
        processors.RobertaProcessing(("</s>", 1), ("<s>", 0)),
    ),
    "bert": made(
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
        decoders.WordPiece(),
        ENDS,
        BERT,
    ),
    "xlm-roberta": made(
        several(TABLE, normalizers.Replace(COLLAPSE, " ")),
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), MARK]),
        decoders.Metaspace(),
        ENDS,
        UNIGRAM,
    ),
    "t5": made(
        several(TABLE, normalizers.Replace(COLLAPSE, "▁")),
        MARK,
        decoders.Metaspace(),
        ENDS,
        UNIGRAM,
    ),
}
FAMILIES |= {name: made(None, split(Regex(pattern))) for name, pattern in PATTERNS.items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_tokenizers_of_published_families_are_read(name):
    theirs = FAMILIES[name]
    opened = open_tokenizer(theirs.to_str())
    for text in (
        "a dog's ball",
        "Zwei Hunde\u0301  spielen 12 Bälle",
        "jj \U0001f469\u200d\U0001f680",
    ):
        assert opened.encode(text).ids == theirs.encode(text).ids


def doubled(count):
    return [normalizers.Replace("q", "qq")] * count


def template(*pieces):
    return processors.TemplateProcessing(" ".join(pieces), special_tokens=[("<s>", 0)])


LEVEL = normalizers.ByteLevel()
BOMBS = {
    # of both kinds together, as the second gets what the first makes
    "bytes": (
        made(several(*[normalizers.ByteLevel()] * 5), pre_tokenizers.Sequence([BYTES] * 5)),
        0,
    ),
    "replace": (made(several(*doubled(10))), 0),
    "forty": (made(several(*[normalizers.Replace("q", "r")] * 40)), 0),
    "decoder": (made(decoder=decoders.Sequence([decoders.Replace("q", "qq")] * 10)), 0),
    "table": (made(normalizers.Precompiled(charsmap("j", "j" * 1000))), 0),
    "tables": (made(several(*[normalizers.Precompiled(charsmap("j", "j" * 30))] * 2)), 0),
    "after replace": (made(several(normalizers.Replace("q", "j" * 40), TABLE)), 0),
    "compatibility": (made(several(*[normalizers.NFKD(), normalizers.NFKC()] * 2)), 0),
    "regular": (made(normalizers.Replace(Regex("(a+)+b"), "a")), 0),
    # these only by the trial
    "panic": (made(after=processors.Sequence([template("$A", "$A", "<s>")] * 4)), 1),
}


@pytest.fixture
def trials(monkeypatch):
    """What was tried, of tokenizers that this process has not opened before."""
    tried, real = [], tokenizer._try
    monkeypatch.setattr(tokenizer, "TRIED", set())
    monkeypatch.setattr(tokenizer, "_try", lambda text: tried.append(text) or real(text))
    return tried


@pytest.mark.parametrize("name", BOMBS)
def test_a_text_neither_grows_without_bound_nor_fails(name, trials):
    """Only what no kind of step shows takes a process."""
    bomb, tried = BOMBS[name]
    with refuses("no tokenizer" if tried else "times as long|steps|not known to end"):
        open_tokenizer(bomb.to_str())
    assert len(trials) == tried


def test_a_panic_becomes_a_line_of_a_command():
    bomb, _ = BOMBS["panic"]
    with pytest.raises(BaseException, match="implemented") as panic:
        bomb.encode("a")
    assert not isinstance(panic.value, Exception)
    assert is_expected(panic.value)


SLOW = {
    # it tries all parts of a word, however long
    "WordPiece": models.WordPiece(PIECES, unk_token="<unk>", max_input_chars_per_word=10**9),
    "BPE": models.BPE(WORDS, [], continuing_subword_prefix="#" * 10**6),
}


@pytest.mark.parametrize("name", SLOW)
def test_the_trial_ends_what_takes_long(name, monkeypatch):
    monkeypatch.setattr(tokenizer, "TRIAL", (2**30, 1))
    with refuses("1 seconds"):
        open_tokenizer(made(model=SLOW[name]).to_str())


def test_one_trial_for_each_tokenizer_and_none_for_those_trained_here(trials):
    text, other = (FAMILIES[name].to_str() for name in ("gpt2", "qwen"))
    open_tokenizer(text)
    open_tokenizer(json.dumps(json.loads(text), indent=2))
    ours = open_tokenizer(other, trained_here=True)
    open_tokenizer(ours.to_str())
    assert len(trials) == 1


def test_padding_and_truncation_are_left_out():
    theirs = made()
    theirs.enable_padding(length=10**9)
    theirs.enable_truncation(1)
    assert len(open_tokenizer(theirs.to_str()).encode("aaa").ids) == 3


def test_damaged_tables():
    content = json.loads(made(TABLE).to_str())
    for table in ("AAAA", "no base 64!", base64.b64encode(b"\xff" * 9).decode()):
        content["normalizer"]["precompiled_charsmap"] = table
        with refuses("no tokenizer"):
            open_tokenizer(json.dumps(content))
