"""Word forms: verbs in the simple present tense, adverbs from adjectives; English, by a dictionary of lemmas.

    present_tense("is running and jumping")   run and jump
    adverb("very slow")                       very slowly
    lemmas("runs through the woods", "VERB")  run through wood

The dictionary (lemminflect, 1 MB) is loaded at the first word. Words that it lacks do not change.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

SMALL_WORDS = {"a", "an", "the", "his", "her", "its", "their", "own"}
"""Words that add no meaning to a value of a tag."""
_AUXILIARIES = {"am", "is", "are", "was", "were", "be", "been"}
_JOINING = {"and", "then"}
_FLAT_ADVERBS = {*("asleep", "awake", "hard", "high", "late", "left", "non-stop", "right", "together", "very", "wide")}
"""Adjectives that do not change, because they have no adverb in -ly, or one with another meaning."""


def present_tense(phrase: str) -> str:
    """Return a motion with its verbs as lemmas, so that `running`, `runs` and `ran` are one motion.

    Verbs are the first word, those joined to it (`runs, jumps and falls`), and every `-ing` form joined to an `-ing`
    form; adverbs in -ly do not count (`slowly runs`).
    """
    words = phrase.split(" ")
    first, *others = [number for number, word in enumerate(words) if not _is_adverb(word)] or [0]
    if others and words[first] in _AUXILIARIES and words[others[0]].endswith("ing"):
        del words[first]
        first = others[0] - 1
    continuous, after_verb, joined = words[first].endswith("ing"), True, True
    for position, word in enumerate(words):
        bare = word.rstrip(",")
        if word in _JOINING or _is_adverb(bare):
            joined = joined or word in _JOINING or word != bare
            continue
        after_verb = joined and (after_verb or (continuous and bare.endswith("ing")))
        if after_verb:
            words[position] = _lemma(bare, "VERB") + word[len(bare) :]
        joined = word != bare
    return " ".join(words)


def adverb(phrase: str) -> str:
    """Return a manner with its last word as an adverb if it is an adjective; other phrases are unchanged.

    A word that is an adverb as well (fast, backwards) stays, unless the dictionary knows the form in -ly (slow, quick).
    """
    *before, word = phrase.split(" ")
    if word.endswith(("ly", "ward")) or word in _FLAT_ADVERBS or not _is(word, "ADJ"):
        return phrase
    made = _with_ly(word)
    return phrase if _is(word, "ADV") and not _is(made, "ADV") else " ".join([*before, made])


@lru_cache(maxsize=1 << 16)  # a dataset has few values, and many clips of each
def lemmas(phrase: str, kind: Literal["NOUN", "VERB"]) -> str:
    """Return the lemmas of a tag's value; `kind` is the part of speech of its first word, the others count as nouns."""
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


def _is_adverb(word: str) -> bool:
    return word.endswith("ly") and _is(word, "ADV")


def _is(word: str, kind: str) -> bool:
    from lemminflect import getAllLemmas

    return word in getAllLemmas(word).get(kind, ())
