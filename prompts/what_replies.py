"""Replies to the request `what`: tolerant parsing of the form in `tags.py`, with strict checks of the content.

The parser tolerates what cannot be mistaken: case, spaces and newlines, code fences, reasoning blocks and prose around
the reply, full-width brackets and digits, HTML-escaped tags, missing closing tags, the same reply given twice, and JSON
with the tags as keys. All seven tags must be there, each with one allowed value. So that equal replies become equal
text, words are lower-cased and lose accents, a leading article and a final full stop. Verbs of the motion become
lemmas, and an adjective of manner becomes an adverb.

If the question named characters, the actor (tag AC) follows: one of them, or `none`. Last comes a sentence (tag SE),
the only part that may be missing or unusable; it is then None, and the reply still counts.

All faults of a reply are raised as one `TagError`, whose message is written for the model, to be sent back for repair.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from prompts.reply_text import COUNT_WORDS, SAYS_NOTHING, as_text, fold, objects, quoted
from prompts.tags import (
    EXAMPLE,
    EXAMPLE_WITH_ACTOR,
    MOST_WORDS,
    NOBODY,
    NUMBERS,
    TAGS,
    TagError,
    WhatReply,
    sentence_pattern,
    words_pattern,
)
from prompts.words import adverb, present_tense

_MOST_CHARACTERS = 80
_EXAMPLES = (EXAMPLE.sentence, EXAMPLE_WITH_ACTOR.sentence)
_STILL = {
    *("still", "static", "stationary", "motionless", "be still", "remain still", "stay motionless"),
    *("not move", "not moving", "be not moving", "do not move", "does not move", "don't move", "doesn't move"),
}
"""Motions that mean `stay still`, in addition to values that deny any motion."""
_NO_MOTION = re.compile(r"(?:there is )?(?:no|without(?: any)?) (?:\w+ )?(?:motion|movement)s?\b")
_NOTHING = re.compile(r"not?$|no(?:t any)? |no-one\b|none\b")
_PRONOUNS = {"he", "she", "it", "they", "him", "her", "them"}
_PEOPLE = {"boy", "girl", "man", "woman"}
_SEVERAL = re.compile(rf"(?:[2-9]|[1-9][0-9]+|{'|'.join(COUNT_WORDS[2:])}|both|several|many) ")

# `ML` is the motion level given in the prompt; some models repeat it, and it ends the value before it like any tag.
_MARK = re.compile(rf"<\s*(/\s*)?({'|'.join(TAGS)}|AC|SE|ML)\s*(/\s*)?>", re.I)


def parse_what(text: str, names: Sequence[str] = ()) -> WhatReply:
    """Parse the verbatim reply to the request `what`, whose question named these characters.

    Raises:
        TagError: with every fault of the reply in one message.
    """
    found = tag_values(fold(text))
    values: dict[str, Any] = {}
    faults: list[str] = []
    for tag in TAGS:
        try:
            values[tag] = read_number(tag, found[tag], NUMBERS[tag]) if tag in NUMBERS else read_words(tag, found[tag])
        except TagError as fault:
            faults.append(str(fault))
    try:
        actor = _read_actor(found["AC"], values.get("S"), names)
    except TagError as fault:
        faults.append(str(fault))
    if faults:
        raise TagError(" ".join(faults))
    if (values["S"], values["MD"], values["EV"]) == (EXAMPLE.S, EXAMPLE.MD, EXAMPLE.EV):
        raise TagError("The reply repeats the example of the instructions; describe this clip instead.")
    raw_sentence = found["SE"][-1] if found["SE"] else None
    return WhatReply(**values, actor=actor, sentence=_read_sentence(raw_sentence, names), raw_sentence=raw_sentence)


def tag_values(plain: str) -> dict[str, list[str]]:
    """Return all values of each tag: from its opening mark to the next mark of any tag, and by its key in JSON."""
    found: dict[str, list[str]] = {tag: [] for tag in (*TAGS, "AC", "SE", "ML")}
    for item in (item for one in objects(plain) for item in one.items()):
        if item[0].upper() in found:
            found[item[0].upper()].append(as_text(item[1]))
    marks = list(_MARK.finditer(plain))
    for mark, following in zip_longest(marks, marks[1:]):
        if mark[1] or mark[3]:
            continue
        value = plain[mark.end() : following.start() if following else len(plain)].strip()
        closed = following is not None and following[1]
        # an unclosed tag ends with its line: later lines are prose
        found[mark[2].upper()].append(value if closed else value.split("\n", 1)[0].strip())
    return found


def read_words(tag: str, texts: list[str]) -> str:
    """Return the only value of a tag of words in its canonical form; TagError if it is missing or unusable."""
    words = _only(tag, [_canonical(tag, value) for value in texts])
    if not any(map(str.isalpha, words)) or words in SAYS_NOTHING or _NOTHING.match(words):
        raise TagError(f"Tag <{tag}> says nothing.")
    if tag == "S" and (re.search(r"[,/&+]|\b(?:and|or)\b", words) or _names_several(words)):
        raise TagError(f"Tag <S> must be one subject, the one that acts, not {quoted(words)}.")
    if tag == "S" and words in _PRONOUNS:
        raise TagError(f"Tag <S> must be a noun, not {quoted(words)}.")
    most = MOST_WORDS[tag]
    if len(words.split()) > most or len(words) > _MOST_CHARACTERS:
        raise TagError(f"Tag <{tag}> is too long: use at most {most} words and {_MOST_CHARACTERS} characters.")
    if any(character.isalpha() and not character.isascii() for character in words):
        raise TagError(f"Tag <{tag}> must be in English, not {quoted(words)}.")
    if not re.fullmatch(words_pattern(tag), words):
        raise TagError(f"Tag <{tag}> must hold plain words only, not {quoted(words)}.")
    return words


def _names_several(subject: str) -> bool:
    """Return true for `two girls` and `girl boy`."""
    words = subject.split()
    return bool(_SEVERAL.match(subject)) or (len(words) > 1 and _PEOPLE.issuperset(words))


def _canonical(tag: str, value: str) -> str:
    """Return a value in its canonical form: equal values become equal text."""
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", value) if not unicodedata.combining(letter))
    words = re.sub(r"\s+", " ", plain).strip(" \"'`*.,!?").lower()
    if tag == "EV":
        words = re.sub(r"^(?:in|at|on|inside) (?=\w)", "", words)
    words = re.sub(r"^(?:an?|the) (?=\w)", "", words)
    if tag == "MA":
        return adverb(words)
    if tag == "MD":
        words = present_tense(words)
        return "stay still" if words in _STILL or _NO_MOTION.match(words) else words
    return words


def read_number(tag: str, texts: list[str], allowed: Sequence[int]) -> int:
    """Return the only value of a tag, one of the allowed numbers; TagError if it is missing or another."""
    value = _only(tag, [re.sub(r"\s+", "", text).removeprefix("+") for text in texts])
    if value not in map(str, allowed):
        raise TagError(f"Tag <{tag}> must be {' or '.join(map(str, allowed))}, not {quoted(value)}.")
    return int(value)


def _read_actor(texts: list[str], subject: str | None, names: Sequence[str]) -> str | None:
    """Return the name in the tag AC, or in S if S is a name; None if the subject is not one of the characters."""
    if not names:
        return None
    known = {_key(name): name for name in names}
    if not texts and subject in known:
        return known[subject]
    value = _only("AC", [_key(text) for text in texts])
    bare = re.sub(r"^(?:an?|the) (?=\w)", "", value)
    name = known.get(value) or known.get(bare)
    if name is None and bare not in {NOBODY, f"{NOBODY} of them", subject, *SAYS_NOTHING}:
        raise TagError(f"Tag <AC> must be {', '.join(names)} or {NOBODY}, not {quoted(value)}.")
    return name


def _key(name: str) -> str:
    return " ".join(fold(name).split()).strip(" \"'`*.,!?").casefold()


def _read_sentence(raw: str | None, names: Sequence[str]) -> str | None:
    words = " ".join((raw or "").split()).strip(" \"'`*")
    if not words:
        return None
    sentence = words[0].upper() + words[1:] + ("" if words.endswith((".", "!", "?")) else ".")
    usable = len(sentence.split()) > 2 and re.fullmatch(sentence_pattern(names), sentence)
    return sentence if usable and sentence not in _EXAMPLES else None


def _only(tag: str, texts: list[str]) -> str:
    """Return the only value of a tag, repeated or not."""
    if not texts:
        raise TagError(f"Tag <{tag}> is missing.")
    if len(set(texts)) > 1:
        raise TagError(f"Tag <{tag}> is given several values that contradict each other.")
    return texts[0]
