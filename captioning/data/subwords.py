"""Vocabulary of pieces of words: byte-pair encoding, or a tokenizer of one's own.

Words stay what the language splits a caption into, and all that counts or shows words counts and
shows these; ids are pieces, of which a word has one or more. Needs the library `tokenizers`.

V ids, including the special tokens.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile

from pydantic import SkipValidation

from captioning.config.types import given_path, validated
from captioning.data.caption_words import CaptionWords
from captioning.data.readers.parsing import at
from captioning.data.vocabulary import MaxSize, MinCount, Vocabulary
from captioning.data.words import CHARACTERS, ENGLISH_WORDS, Language
from captioning.errors import CaptioningError, naming, quoted
from captioning.files import MAX_TEXT, read_bytes
from captioning.pretrained.tokenizer import BROKEN, open_tokenizer, tokenizers_library
from captioning.tokens import EOS, NAMES, UNK

BPE = "bpe"
FILE = "tokenizer.json"
BLANKS = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
"""How a tokenizer divides captions into words, with a mark in place of the blank before each."""
PLAIN = re.compile(r"[\w'-]+")  # a word without that mark
SAMPLE, CHANGED = 1000, 0.1
"""Captions that are encoded and decoded, and the share that may become other words (D)."""


class Subwords(Vocabulary):
    """Immutable mapping between words and the ids of their pieces, by a tokenizer.

    Ids 0..3 are the special tokens of `captioning.tokens`. The tokenizer's own special tokens are
    no pieces: the settings of a pretrained model, not its tokenizer, tell by which of them texts
    begin, end and are padded. Text that the tokenizer does not know, or takes for one of them, is
    UNK.

    Args:
        text: JSON as `tokenizers` writes it; it may come from a stranger.
        trained_here: it comes from this run.

    Attributes:
        pieces: `[V]` texts of the ids, beginning with a blank where a word begins; empty for
            PAD, BOS and EOS.
        tokenizer_ids: `[V - 4]`, the tokenizer's ids of our ids from 4 on, ascending.
    """

    __slots__ = ("_ours", "_tokenizer", "pieces", "tokenizer_ids")
    unit = "pieces of words"

    def __init__(self, text: str, language: Language = ENGLISH_WORDS, trained_here: bool = False):
        if language.tokens == CHARACTERS:
            raise CaptioningError(
                f"data.tokens={CHARACTERS} makes words of one character, which have no pieces: set "
                "data.vocabulary.subwords=null"
            )
        tokenizer = self._tokenizer = open_tokenizer(text, trained_here)
        with naming(BROKEN):
            added = tokenizer.get_added_tokens_decoder()
            special = {i for i, token in added.items() if token.special}
            unknown = tokenizer.token_to_id(getattr(tokenizer.model, "unk_token", None) or "")
            known = sorted(set(tokenizer.get_vocab().values()) - special - {unknown})
            self.tokenizer_ids = tuple(known)
            if unknown is None:
                self.pieces = "", "", "", "", *self._texts(known)
            else:
                *texts, of_unknown = self._texts([*known, unknown])
                self.pieces = "", "", "", of_unknown, *texts
        super().__init__([tokenizer.id_to_token(i) for i in self.tokenizer_ids], language)
        self._ours = {i: ours for ours, i in enumerate(self.tokenizer_ids, len(NAMES))}

    def _texts(self, ids: Sequence[int]) -> list[str]:
        """The text of each of the tokenizer's ids after another one."""
        alone = self._decode([i] for i in ids)
        before = next((i for i, text in enumerate(alone) if text.isalnum()), None)
        if before is None:
            raise CaptioningError("this tokenizer has no piece of letters or digits")
        pairs = self._decode((ids[before], i) for i in ids)
        texts = [pair.removeprefix(alone[before]) for pair in pairs]
        if several := [text for text in texts if len(text.split()) > 1]:
            raise CaptioningError(
                f"this tokenizer has pieces of several words: {quoted(several[0])}"
            )
        return texts

    def _decode(self, captions: Iterable[Sequence[int]]) -> list[str]:
        return self._tokenizer.decode_batch([[*ids] for ids in captions], skip_special_tokens=False)

    @property
    def saved(self) -> str:
        return self._tokenizer.to_str()

    def knows(self, word: str) -> bool:
        return UNK not in self.encode([word])

    def encode(self, words: Iterable[str]) -> list[int]:
        """Ids of the pieces of a caption, UNK for what is unknown; without BOS and EOS."""
        # half a character, which the library refuses, becomes the sign of what cannot be read
        text = " ".join(words).encode(errors="surrogatepass").decode(errors="replace")
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        return [self._ours.get(i, UNK) for i in encoded.ids]

    def encode_all(self, captions: Iterable[Sequence[str]]) -> CaptionWords[int]:
        captions = CaptionWords.of(captions)
        whole = json.loads(self.saved)
        divided = whole["normalizer"] is None and whole["pre_tokenizer"] == BLANKS
        if not divided or not all(map(PLAIN.fullmatch, captions.lexicon)):
            return CaptionWords.of(map(self.encode, captions))
        # each word alone, as this tokenizer first divides captions into words
        pieces = CaptionWords.of(self.encode([word]) for word in captions.lexicon)
        ids = pieces.take(captions.values)
        return replace(ids, starts=ids.starts[captions.starts])

    def word_numbers(self, ids: Iterable[int]) -> list[int]:
        numbers, number, begun, between = [], 0, False, False
        for text in (self.pieces[i] for i in map(int, ids) if i != EOS):
            if begun and (between or text[:1].isspace()):
                number, begun = number + 1, False
            begun, between = begun or bool(text.strip()), text[-1:].isspace()
            numbers.append(number)
        last = number if begun else max(number - 1, 0)  # which a blank at the end follows
        return [min(number, last) for number in numbers]

    def words_of(self, ids: Iterable[int]) -> list[str]:
        begun = takewhile(lambda i: i != EOS, map(int, ids))
        return [word for word in self.each_word(begun) if word]

    def each_word(self, ids: Iterable[int]) -> list[str]:
        kept = [i for i in map(int, ids) if i != EOS]
        words: list[list[int]] = []
        for i, number in zip(kept, self.word_numbers(kept), strict=True):
            if number == len(words):
                words.append([])
            if i >= len(NAMES):
                words[number].append(self.tokenizer_ids[i - len(NAMES)])
        return [text.strip() for text in self._decode(words)]


def load_vocabulary(saved: Sequence[str] | str, language: Language = ENGLISH_WORDS) -> Vocabulary:
    """The vocabulary of what `Vocabulary.saved` gave, for captions in `language`."""
    return (Subwords if isinstance(saved, str) else Vocabulary)(saved, language)  # type: ignore[arg-type]


@validated
def build_vocabulary(
    captions: SkipValidation[Iterable[Sequence[str]]],
    min_count: MinCount = 5,
    max_size: MaxSize = 10000,
    subwords: str | None = None,
) -> Vocabulary:
    """The words of training captions, as `Vocabulary.from_captions`, or their pieces.

    Args:
        captions: the words of each training caption.
        min_count: rarer words become UNK; rarer pairs of pieces are not merged.
        max_size: largest V, including the four special tokens.
        subwords: `bpe` for byte-pair encoding of the captions; a `tokenizer.json`, or the folder
            of one, all of whose pieces are kept; None for words.
    """
    if subwords is None:
        return Vocabulary.from_captions(captions, min_count, max_size)
    captions = CaptionWords.of(captions)
    trained_here = subwords == BPE
    pairs = _byte_pairs(captions, min_count, max_size) if trained_here else read_tokenizer(subwords)
    with at(f"data.vocabulary.subwords={subwords}"):
        vocabulary = Subwords(pairs, trained_here=trained_here)
    step = 1 + len(captions) // SAMPLE
    sample = [captions[n] for n in range(0, len(captions), step)]
    changed = [
        words
        for words in sample
        if UNK not in (ids := vocabulary.encode(words)) and vocabulary.words_of(ids) != [*words]
    ]
    if len(changed) > CHANGED * len(sample):
        words, again = [*changed[0]], vocabulary.words_of(vocabulary.encode(changed[0]))
        raise CaptioningError(
            f"data.vocabulary.subwords={subwords} does not give the words of captions back: "
            f"{quoted(words)} become {quoted(again)}"
        )
    return vocabulary


def read_tokenizer(subwords: str) -> str:
    """The text of a `tokenizer.json`, or of the one in a folder."""
    path = given_path(subwords)
    with naming(f"data.vocabulary.subwords={subwords} is neither {BPE} nor a {FILE}"):
        return read_bytes(path / FILE if path.is_dir() else path, MAX_TEXT).decode(errors="replace")


def _byte_pairs(captions: Iterable[Sequence[str]], min_count: int, max_size: int) -> str:
    """Train byte-pair encoding within words: pairs that occur `min_count` times.

    The most frequent come first (Sennrich et al., "Neural Machine Translation of Rare Words with
    Subword Units", 2016).
    """
    library, unknown = tokenizers_library(), NAMES[UNK]
    tokenizer = library.Tokenizer(library.models.BPE(unk_token=unknown))
    tokenizer.pre_tokenizer = library.pre_tokenizers.Metaspace()
    tokenizer.decoder = library.decoders.Metaspace()
    size = max_size - len(NAMES)
    trainer = library.trainers.BpeTrainer(
        vocab_size=size + 1,  # and the unknown one
        min_frequency=min_count,
        limit_alphabet=size,
        special_tokens=[unknown],
        show_progress=False,
    )
    tokenizer.train_from_iterator(map(" ".join, captions), trainer)
    return tokenizer.to_str()
