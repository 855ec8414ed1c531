"""Pieces of words: by byte-pair encoding, and by tokenizers of other kinds."""

import json
import pickle
from pathlib import Path

import pytest
import torch
from numbered import Numbered, example
from refusals import refuses
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from captioning.config.explain import explain
from captioning.data.batch import BatchIndex
from captioning.data.dataset import CaptionDataset
from captioning.data.subwords import Subwords, build_vocabulary, load_vocabulary
from captioning.data.words import Language
from captioning.decoding.maps import reference_maps, word_maps
from captioning.errors import CaptioningError
from captioning.tokens import BOS, EOS, PAD, UNK

TEXTS = ["a red dog", "a blue dog runs", "two dogs run", "a dog's red sledge", "größere hunde"] * 2
CAPTIONS = [tuple(text.split()) for text in TEXTS]
MARK = pre_tokenizers.Metaspace()


def bpe(size=40, **settings):
    return build_vocabulary(CAPTIONS, 1, size, "bpe", **settings)


def tokenizer(model, before, decoder, trainer, size=60, **settings):
    made = Tokenizer(model)
    made.pre_tokenizer = before
    if decoder is not None:
        made.decoder = decoder
    unknown = getattr(model, "unk_token", None)
    special = ["<s>", *([unknown] if unknown else [])]
    made.train_from_iterator(
        TEXTS, trainer(vocab_size=size, special_tokens=special, show_progress=False, **settings)
    )
    return made


def gpt2():
    """Bytes with a letter in place of the blank before all words but the first."""
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made = tokenizer(models.BPE(), letters, decoders.ByteLevel(), trainers.BpeTrainer)
    made.post_processor = processors.TemplateProcessing("<s> $A <s>", special_tokens=[("<s>", 0)])
    made.enable_padding(length=30)
    made.enable_truncation(5)
    return made


def bert():
    made = tokenizer(
        models.WordPiece(unk_token="[UNK]"),
        pre_tokenizers.WhitespaceSplit(),
        decoders.WordPiece(),
        trainers.WordPieceTrainer,
        200,
    )
    made.normalizer = normalizers.BertNormalizer(strip_accents=False)
    return made


def t5():
    unknown = {"unk_token": "<s>"}
    return tokenizer(
        models.Unigram(), MARK, decoders.Metaspace(), trainers.UnigramTrainer, **unknown
    )


def clip():
    end = {"end_of_word_suffix": "</w>"}
    split = pre_tokenizers.WhitespaceSplit()
    return tokenizer(
        models.BPE(**end), split, decoders.BPEDecoder("</w>"), trainers.BpeTrainer, **end
    )


def without_decoder():
    return tokenizer(models.BPE(), pre_tokenizers.WhitespaceSplit(), None, trainers.BpeTrainer, 30)


def of(made, path):
    made.save(str(path / "tokenizer.json"))
    return build_vocabulary(CAPTIONS, subwords=str(path))


@pytest.mark.parametrize("make", [bpe, gpt2, bert, t5])
def test_captions_come_back_word_by_word(make, tmp_path):
    vocabulary = make() if make is bpe else of(make(), tmp_path)
    for words in CAPTIONS:
        ids = vocabulary.encode(words)
        ended = [*ids, EOS]
        assert vocabulary.words_of([BOS, *ended, 5, PAD]) == [*words]
        assert vocabulary.each_word(ended) == [*words]
        assert vocabulary.decode(ended) == " ".join(words)
        numbers = vocabulary.word_numbers(ended)
        assert len(numbers) == len(ids)
        assert [*dict.fromkeys(numbers)] == [*range(len(words))]
        for number, word in enumerate(words):
            own = [i for i, n in zip(ids, numbers, strict=True) if n == number]
            assert vocabulary.words_of(own) == [word]
    assert vocabulary.unknown(CAPTIONS) == 0
    loaded = load_vocabulary(vocabulary.saved)
    for copy in (loaded, pickle.loads(pickle.dumps(vocabulary))):
        assert copy == vocabulary
        assert copy.encode(CAPTIONS[3]) == vocabulary.encode(CAPTIONS[3])


STRANGERS = [("zebra", "zebra", "dog"), (), ("Dog", "don't", "12")]
MARKED = [("dog", "\u2581dog"), ("ice cream",), ("dog", "<unk>", "dog"), ("<s>",), ("\ud83d",)]


@pytest.mark.parametrize("make", [bpe, gpt2, bert, t5])
@pytest.mark.parametrize("others", [STRANGERS, STRANGERS + MARKED], ids=["words", "marks"])
def test_all_captions_together_have_the_ids_of_each_alone(make, others, tmp_path):
    vocabulary = make() if make is bpe else of(make(), tmp_path)
    captions = CAPTIONS + others
    expected = [tuple(vocabulary.encode(words)) for words in captions]
    assert [*vocabulary.encode_all(captions)] == expected


def test_byte_pairs_are_those_of_training_and_unknown_letters_are_unknown():
    vocabulary = bpe(40)
    assert len(vocabulary) == 40
    assert vocabulary == bpe(40)
    assert vocabulary != bpe(39)
    assert " dog" in vocabulary.pieces  # of the most frequent pairs
    assert vocabulary.encode(["dog"]) == [vocabulary.pieces.index(" dog")]
    assert vocabulary.words_of(vocabulary.encode(["dogsled"])) == ["dogsled"]  # never read
    for word in ("zebra", "\ud83d"):
        assert UNK in vocabulary.encode([word])
        assert not vocabulary.knows(word)
    assert vocabulary.unknown([("a", "zebra")]) == 1 / 2
    blank = vocabulary.pieces.index(" ")
    assert vocabulary.each_word([*vocabulary.encode(["dog"]), blank]) == ["dog"]
    assert len(build_vocabulary([("abcdefgh",)], 1, 9, "bpe")) == 9  # with fewer letters


def test_pairs_that_are_rarer_than_min_count_are_no_pieces():
    captions = [("dog",)] * 3 + [("cat",)] * 2
    for min_count, expected in ((2, {" dog", " cat"}), (3, {" dog"})):
        pieces = build_vocabulary(captions, min_count, 40, "bpe").pieces
        assert {" dog", " cat"} & set(pieces) == expected


def test_ids_of_the_tokenizer_are_kept_and_its_special_tokens_are_no_pieces(tmp_path):
    made = gpt2()
    vocabulary = of(made, tmp_path)
    assert vocabulary.tokenizer_ids == tuple(range(1, made.get_vocab_size()))  # 0 is <s>
    theirs = made.encode("a red dog", add_special_tokens=False).ids[:3]
    assert [vocabulary.tokenizer_ids[i - 4] for i in vocabulary.encode(CAPTIONS[0])][:3] == theirs
    assert vocabulary.encode(["<s>"]) == [UNK]
    assert vocabulary.words_of(vocabulary.encode(["a"] * 20)) == ["a"] * 20  # neither is on


def test_a_tokenizer_of_words_has_the_ids_of_a_vocabulary_of_words(tmp_path):
    words = build_vocabulary(CAPTIONS, min_count=2)
    ids = {"[UNK]": 0} | {word: i for i, word in enumerate(words.words, 7)}
    made = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    vocabulary = of(made, tmp_path)
    assert vocabulary.words == words.words
    caption = ["a", "zebra", "dog"]
    encoded = words.encode(caption)
    assert vocabulary.encode(caption) == encoded
    assert vocabulary.word_numbers(encoded) == words.word_numbers(encoded) == [0, 1, 2]
    assert vocabulary.each_word(encoded) == words.each_word(encoded) == ["a", "", "dog"]
    assert vocabulary.words_of(encoded) == words.words_of(encoded)


@pytest.mark.parametrize("make", [clip, without_decoder])
def test_tokenizers_that_join_words_in_another_way_are_refused(make, tmp_path):
    with refuses("does not give the words of captions back"):
        of(make(), tmp_path)


def test_what_is_no_tokenizer_of_words_is_refused():
    text = str(bpe().saved)
    changed = json.loads(text)
    changed["model"]["merges"] = [["never", "seen"]]
    spaced = json.loads(text)
    spaced["model"]["vocab"]["▁a▁dog"] = 99
    panic = json.loads(text)
    panic["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    for broken, reason in {
        "": "no tokenizer",
        "[]": "no tokenizer",
        text[:-1]: "no tokenizer",
        json.dumps(changed): "no tokenizer",
        json.dumps(panic): "no tokenizer",
        json.dumps(spaced): "pieces of several words",
        Tokenizer(models.BPE()).to_str(): "no piece of letters",
        " " * (2**25 + 1): "too large",
    }.items():
        with refuses(reason):
            load_vocabulary(broken)
    for name in (str(Path(__file__)), "nothing"):
        with pytest.raises((CaptioningError, OSError)) as refusal:
            build_vocabulary([["a"]], subwords=name)
        assert explain(refusal.value).startswith(f"data.vocabulary.subwords={name}")
    with refuses("tokens=characters"):
        load_vocabulary(text, Language("zh", "characters"))


def stepped(kind, *steps):
    changed = json.loads(str(bpe().saved))
    members = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}
    changed[kind] = {"type": "Sequence", "more": [], members[kind]: list(steps)}
    return json.dumps(changed)


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


STRANGE = {
    stepped("normalizer", *[replace({"String": "c"}, "cc")] * 10): "512 times",
    stepped("decoder", *[replace({"String": "a"}, "a")] * 17): "17 steps",
    stepped("normalizer", replace({"String": ""}, "a")): "512 times",
    stepped("normalizer", replace({"Regex": "(a+)+b"}, "a")): "not known to end",
    stepped("pre_tokenizer", {"type": "UnicodeScripts"}): "UnicodeScripts is none of",
    stepped("decoder", {"type": "CTC"}): "CTC is none of",
}


@pytest.mark.parametrize("text", STRANGE, ids=range(len(STRANGE)))
def test_steps_of_a_strangers_tokenizer_end(text):
    """Others are in `tests/pretrained/test_tokenizer.py`."""
    with refuses(STRANGE[text]):
        load_vocabulary(text)


def test_steps_that_are_known_are_read():
    doubled = stepped("normalizer", *[replace({"String": "c"}, "cc")] * 4, {"type": "Lowercase"})
    assert isinstance(load_vocabulary(doubled), Subwords)


def test_longest_captions_count_words_and_pieces():
    vocabulary = bpe()
    examples = [example(1, "a red dog", "a sledge", "a dog runs a red dog")]
    lengths = {n: len(vocabulary.encode(r.words)) for n, r in enumerate(examples[0].references)}
    assert lengths[1] > lengths[0] == 3

    def kept(max_words, max_pieces):
        data = CaptionDataset(
            examples, Numbered(), vocabulary, max_words, 5, False, max_pieces=max_pieces
        )
        return int((data[BatchIndex(0, [0])].tokens[0, :, 0] == BOS).sum())

    assert [kept(3, None), kept(3, 3), kept(9, lengths[1]), kept(9, None)] == [2, 1, 2, 3]


def test_the_map_of_a_word_is_the_mean_of_its_pieces():
    maps = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0], [0.25, 0.75]])
    assert word_maps(maps, [0, 1, 2, 3]) is maps
    merged = torch.tensor([[1.0, 0.0], [0.25, 0.75], [0.25, 0.75]])
    assert torch.equal(word_maps(maps, [0, 1, 1, 2]), merged)
    vocabulary = bpe()
    first, ids = len(vocabulary.encode(["dog"])), vocabulary.encode(["dog", "sledge"])
    tokens = torch.tensor([[[*ids, EOS, PAD], [PAD] * (len(ids) + 2)]])
    attention = torch.rand(1, 2, tokens.shape[2], 2)
    of_words = reference_maps(attention, tokens, vocabulary.word_numbers)[0, 0]
    assert first < len(ids) - 1
    for own, map in zip((slice(first), slice(first, len(ids))), of_words, strict=False):
        assert torch.allclose(map, attention[0, 0, own].mean(dim=0))
