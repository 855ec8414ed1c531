"""Words of captions and captions of words in several languages, and functions of the user that
split.
"""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from refusals import refuses

from captioning.data.vocabulary import Vocabulary
from captioning.data.words import ENGLISH_WORDS, Language, split_words
from captioning.tokens import UNK


@pytest.mark.parametrize(
    "text, words",
    [
        ("A dog runs.", "a dog runs"),
        ("Two dogs' well-known T-shirts, don't ask!", "two dogs well known t shirts don't ask"),
        ("a man\N{RIGHT SINGLE QUOTATION MARK}s hat", "a man's hat"),
        ("'quoted' rock''n'roll", "quoted rock n'roll"),
        ("3.5 metres, 2 of_them", "3 5 metres 2 of them"),
        (
            "Cafe\N{COMBINING ACUTE ACCENT} \u00c9COLE stra\u00dfe",
            "caf\u00e9 \u00e9cole stra\u00dfe",
        ),
        (
            "\u0939\u093f\u0928\u094d\u0926\u0940 \u72d7",
            "\u0939\u093f\u0928\u094d\u0926\u0940 \u72d7",
        ),
        (" ... !", ""),
        ("", ""),
    ],
)
def test_english_captions(text, words):
    assert split_words(text) == tuple(words.split())


@given(st.text())
def test_any_text_gives_words_that_splitting_leaves_alone(text):
    words = split_words(text)
    assert split_words(ENGLISH_WORDS.join(words)) == words
    assert not any(word.startswith("'") or word.endswith("'") or "_" in word for word in words)


@pytest.mark.parametrize(
    "code, tokens, text, words, written",
    [
        (
            "de",
            "words",
            "Ein Hip\u2010Hop-Tänzer, rot-weiß; geht's?",
            "ein hip-hop-tänzer rot-weiß geht's",
            None,
        ),
        ("de", "words", "Surfer/in - ja", "surfer in ja", None),
        (
            "fr",
            "words",
            "L\u2019homme d'aujourd'hui, peut-être",
            "l' homme d' aujourd' hui peut-être",
            "l'homme ",
        ),
        ("it", "words", "un'altra e' qui", "un' altra e qui", "un'altra e qui"),
        ("tr", "words", "IŞIK İki", "ışık iki", None),
        ("fa", "words", "می\u200cرود.", "می\u200cرود", None),
        (
            "zh",
            "characters",
            "2个穿T恤的人，和 3 Dogs。",
            "2 个 穿 t 恤 的 人 和 3 dogs",
            "2个穿t恤的人和3 dogs",
        ),
        (
            "zh",
            "words",
            "一 只 狗。",
            "一 只 狗",
            "一 只 狗",
        ),  # blanks are what has made these words
        ("ja", "characters", "時々、赤いシャツ", "時 々 赤 い シ ャ ツ", "時々赤いシャツ"),
        ("th", "characters", "ม้า 2 ตัว", "ม้ า 2 ตั ว", "ม้า2ตัว"),
    ],
)
def test_captions_of_other_languages(code, tokens, text, words, written):
    language = Language(code, tokens)
    assert language.split(text) == tuple(words.split(" "))
    assert language.join(language.split(text)).startswith(words if written is None else written)


@given(
    st.sampled_from(["zh", "th", "fr", "de", "tr"]),
    st.text("aB'\u2019- _éİIñ\u0301\u30992.、ーカ々か狗กก้า가\u0e49"),
)
def test_what_is_joined_is_split_alike(code, text):
    language = Language(code, "characters" if code in ("zh", "th") else "words")
    words = language.split(text)
    assert language.split(language.join(words)) == words


def test_words_of_a_written_caption():
    assert ENGLISH_WORDS.words_of("A dog, here.") == (
        "A",
        "dog,",
        "here.",
    )  # as wording has always counted them
    assert Language("de").words_of("Ein Hund.") == ("ein", "hund")


FUNCTIONS = """
from os import getcwd

def split(text):
    yield from text.split("|")

def letters(text):
    return [1, *text]

def fails(text):
    return text.nothing

CONSTANT = 3
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)


@pytest.mark.usefixtures("mine")
def test_a_function_of_the_user():
    chinese = Language("zh", "mine.split", ["mine"])
    assert chinese.split("小狗|。| |Cafe\N{COMBINING ACUTE ACCENT}|") == ("小狗", "Caf\u00e9")
    assert chinese.join(["小狗", "t", "恤", "a", "b"]) == "小狗t恤a b"
    assert Language("en", "mine.split").join(["a", "dog"]) == "a dog"
    stranger = Language("zh", "mine.split", [])
    assert stranger.join(["小狗", "跑"]) == "小狗跑"  # which needs no module
    for refused, text, key in (
        (stranger, "a", r"modules=\[mine\]"),
        (Language("en", "os.getcwd", ["mine"]), "a", r"modules=\[os\]"),
        *(
            (Language("en", f"mine.{name}"), "a", name)
            for name in ("getcwd", "CONSTANT", "missing", "fails", "letters")
        ),
        (Language("en", "no_module.split"), "a", "no_module"),
    ):
        with refuses(key):
            refused.split(text)


@pytest.mark.usefixtures("mine")
def test_words_with_blanks_inside():
    """As segmenters of Vietnamese give them; an underscore is what its author meant by it."""
    vietnamese = Language("vi", "mine.split", ["mine"])
    words = vietnamese.split("xe  đạp|của| học\N{NO-BREAK SPACE}sinh|snake_case|!")
    assert words == ("xe đạp", "của", "học sinh", "snake_case")
    assert vietnamese.join(words) == "xe đạp của học sinh snake_case"
    vocabulary = Vocabulary(words, vietnamese)
    ids = vocabulary.encode(words)
    assert UNK not in ids
    assert vocabulary.words_of(ids) == vocabulary.each_word(ids) == [*words]
    assert vocabulary.words_in("học sinh") == ["học sinh"]
    assert [*vocabulary.words_in("học sinh|của")] == ["học sinh", "của"]


def test_the_language_of_a_runs_data():
    assert Language.of({}) == ENGLISH_WORDS == Language.of({"language": "en", "tokens": "words"})
    assert (
        Language.of({"language": "zh", "tokens": "characters"})
        == Language("zh", "characters")
        != ENGLISH_WORDS
    )
    with refuses(r"tokens=characters .* language=en"):
        Language.of({"tokens": "characters"})
    for key, value in (
        ("language", "german"),
        ("language", 5),
        ("tokens", "letters"),
        ("tokens", ["words"]),
    ):
        with refuses(f"data.{key}="):
            Language.of({key: value})
    with pytest.raises(ValidationError):
        Language("german")
