"""Word forms: verbs in the simple present tense, adverbs from adjectives; English, by a dictionary of lemmas.

    present_tense("is running and jumping")   run and jump
    adverb("very slow")                       very slowly
    lemmas("runs through the woods", "VERB")  run through wood

The dictionary (lemminflect, 1 MB) is loaded at the first word. Words that it lacks stay as they are.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

SMALL_WORDS = {"a", "an", "the", "his", "her", "its", "their", "own"}
"""Words without a meaning of their own in a value of a tag."""
_AUXILIARIES = {"am", "is", "are", "was", "were", "be", "been"}
_FLAT_ADVERBS = {"fast", "hard", "high", "late", "long", "low", "still", "straight", "sideways", "well", "wide"}
"""Adverbs that are adjectives as well; the other words of both kinds are adjectives (slow, quick)."""


def present_tense(phrase: str) -> str:
    """Return a motion with its verbs as lemmas, so that `running`, `runs` and `ran` are one motion.

    Verbs are the first word, one joined to it (`runs and jumps`), and every `-ing` form joined to an `-ing` form.
    """
    words = phrase.split(" ")
    if len(words) > 1 and words[0] in _AUXILIARIES and words[1].endswith("ing"):
        words = words[1:]
    continuous = words[0].endswith("ing")
    for position, word in enumerate(words):
        joined = position > 1 and words[position - 1] == "and"
        if position == 0 or (joined and (position == 2 or (continuous and word.endswith("ing")))):
            words[position] = _lemma(word, "VERB")
    return " ".join(words)


def adverb(phrase: str) -> str:
    """Return a manner whose last word, if it is an adjective, is made an adverb; other phrases are unchanged."""
    *before, word = phrase.split(" ")
    if word.endswith(("ly", "ward")) or word in _FLAT_ADVERBS or not _is_adjective(word):
        return phrase
    return " ".join([*before, _with_ly(word)])


@lru_cache(maxsize=1 << 16)  # a data set has few values, and many clips of each
def lemmas(phrase: str, kind: Literal["NOUN", "VERB"]) -> str:
    """Return a value of a tag in the form that it shares with values that mean the same by grammar.

    Args:
        phrase: the value.
        kind: part of speech of its first word; the other words count as nouns.
    """
    words = phrase.replace(",", "")
    words = present_tense(words) if kind == "VERB" else words
    return " ".join(_lemma(word, "NOUN") for word in words.split(" ") if word not in SMALL_WORDS) or phrase


def _with_ly(adjective: str) -> str:
    if adjective == "good":
        return "well"
    if adjective.endswith("ic"):
        return f"{adjective}ally"
    if re.search(r"[^aeiou]le$", adjective):
        return f"{adjective[:-1]}y"
    if re.search(r"[aeiou].*[^aeiou]y$", adjective):
        return f"{adjective[:-1]}ily"
    return f"{adjective}y" if adjective.endswith("ll") else f"{adjective}ly"


def _lemma(word: str, kind: str) -> str:
    from lemminflect import getLemma  # half a second, and needed only where replies are read

    known = getLemma(word, upos=kind, lemmatize_oov=False)
    # "saw" is a lemma as well as a form of "see", and the present tense was asked for
    return str(known[0]) if known and word not in known else word


def _is_adjective(word: str) -> bool:
    from lemminflect import getAllLemmas

    return word in getAllLemmas(word).get("ADJ", ())
