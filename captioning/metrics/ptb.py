"""PTB tokens of plain English text, without Java.

Stanford's PTB tokenizer (`captioning.metrics.java.ptb_tokenize`) is a longest-match lexer with some
thousand states. For the texts that `is_proved` describes the few rules below give the same tokens;
experiments/tokenizer has the proof.
"""

import re

# Abbreviations that the lexer knows with their period, in either case.
ABBREVIATIONS = (
    "adj adm adv al ala alex apr ariz ark art assn assoc asst atty attys aug ave az bancorp bhd "
    "bldg blvd brig bros ca calif capt cf cie cmdr co col colo comdr conn corp cos cpl ct dak dec "
    "del dept det dr drs elec ens esq est etc ext feb fig figs fla fri ft ga gen gov govs hon ill "
    "inc ind insp intl invt jan jos jr jul jun kan kans ky la lieut lt ltd maj mar mass md messrs "
    "mfg mich minn miss mlle mme mo mon mont mr mrs ms msgr mt mtg natl neb nev no nos nov oct "
    "okla op ore pa penn pfc ph plc pp ppte pptes ppty pptys pres prof profs prop pte ptes pty "
    "ptys pvt rd rep reps rev rt sen sens sep sept seq sfc sgt spc sq sr st ste supt supts sys "
    "tel tenn tex thu thurs treas tue tues univ va vs vt wash wed wis wisc wm wyo"
)
SPLIT = {
    "cannot": "can not",
    "gimme": "gim me",
    "gonna": "gon na",
    "gotta": "got ta",
    "lemme": "lem me",
    "wanna": "wan na",
    "(": "-lrb-",
    ")": "-rrb-",
}
"""Tokens that are written otherwise, or as two."""
ENDING = r"'(?:s|m|d|ll|re|ve)"
JOINED = r"[a-z]+(?:/[a-z]+){1,2}|[0-9]+(?:/[0-9]+|(?:[,.:][0-9]+)+)"
WORD = r"[a-z0-9]+(?:-[a-z0-9]+)*"
TOKEN = re.compile(rf"[a-z]+(?=n't\b)|(?:n't|{ENDING})\b|{JOINED}|{WORD}|[?!]{{2,}}|[&()#/]")

CHARACTERS = re.compile(r"[\t\n\r -~]*")
OPENING = r"(?:[\"(]|#(?=[0-9])|'(?=[a-z]{4}))*"
CLOSING = r"[,.!?\"')]*[:;]?"
CHUNK = re.compile(
    rf"{OPENING}(?:[a-z]+n't|[a-z]+(?:-[a-z]+)*(?:{ENDING})?|{JOINED}|{WORD}){CLOSING}"
    rf"|(?:[-,.!?\"'&#()/]|n't|{ENDING}){CLOSING}|[:;]"
)
"""What may stand between blanks."""
EXCEPTIONS = re.compile(
    # a period that may be part of an abbreviation, or is taken for one before other punctuation
    rf"(?<![a-z0-9])(?<![a-z]')(?:[a-z]|{'|'.join(ABBREVIATIONS.split())})\.|\.[,:;]"
    # apostrophes that belong to a word: d'accord, dunkin' donuts, 'twas
    r"|(?<![a-z])(?:d|j|l|o|ol|dunkin)'|'(?:cause|em|til|tis|twas)|\(\S'|nn't"
    # the last text of a file is read otherwise
    r"|'(?:ll|re|ve)$"
    # two numbers that are one token: 1 1/2, (555) 123 4567
    r"|[0-9)]\s+\(?[0-9]"
    r"|(?:cannot|gimme|gonna|gotta|lemme|wanna)(?:n't|['/-])"
)


def is_proved(text: str) -> bool:
    """Return True if `tokens` is known to give what the PTB tokenizer gives, whatever texts stand
    around.
    """
    lower = text.lower()
    if not CHARACTERS.fullmatch(text) or EXCEPTIONS.search(lower):
        return False
    return all(CHUNK.fullmatch(chunk) for chunk in lower.split())


def tokens(text: str) -> str:
    """Tokens in lower case without punctuation, one space between them."""
    return " ".join(SPLIT.get(token, token) for token in TOKEN.findall(text.lower()))
