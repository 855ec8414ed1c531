"""The Penn Treebank tokenizer of Stanford CoreNLP, as the COCO caption evaluation uses it.

The jar and the list of removed punctuation are those of pycocoevalcap (pycocoevalcap/tokenizer/ptbtokenizer.py), so the
tokens are too. That module writes a temporary file next to the jar; here the texts go through standard input.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from pycocoevalcap.tokenizer import ptbtokenizer

from captioning.metrics.java import Java, allowed_seconds

JAR = Path(ptbtokenizer.__file__).with_name(ptbtokenizer.STANFORD_CORENLP_3_4_1_JAR)
PUNCTUATION = frozenset(ptbtokenizer.PUNCTUATIONS)
# What the tokenizer, Java or Python takes for the end of a line.
LINE_SEPARATORS = re.compile("[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def ptb_tokenize(texts: Sequence[str], timeout: float = 60.0) -> list[str]:
    """Tokenises texts: lower case, punctuation removed, one space between tokens.

    Args:
        texts: N texts of one line each; a line separator within a text counts as a space.
        timeout: seconds for the answer, and as many again for every 500 texts.

    Returns:
        N strings, "" where a text has no token. Characters that the tokenizer does not know, such as emoji, are left
        out, as it does itself.
    """
    if not texts:
        return []
    arguments = ["-cp", str(JAR), "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"]
    with Java("the PTB tokenizer", arguments) as process:
        text = "\n".join(LINE_SEPARATORS.sub(" ", text) for text in texts)
        lines = process.answer(text, allowed_seconds(timeout, len(texts))).split("\n")
    if len(lines) != len(texts):
        raise process.wrong_answer(f"{len(lines)} lines for {len(texts)} texts")
    return [" ".join(token for token in line.rstrip().split(" ") if token not in PUNCTUATION) for line in lines]
