"""Readings of a label: the forms in which two values count as equal, from exact to the vocabulary's groups.

    exact        `runs`, `run` and `dash` are three motions; names on screen are a set
    lemma        `runs` is `run`: the words' dictionary form, without articles; an adverb is its adjective
    group        `dash` is `run` if `vocabulary.toml` publishes them as one

Each reading joins at least the values that the one before it joins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from pipeline.reviews.decisions import FIELDS, Value
from pipeline.reviews.standing import comparable
from prompts.words import adverb, lemmas

EXACT: Final = "exact"
LEMMA: Final = "lemma"
GROUP: Final = "group"
SCORED: Final = tuple(field for field in FIELDS if field != "sentence")
"""Fields with an answer that is right or wrong."""

Groups = Mapping[str, Mapping[str, str]]
"""Published value of the values that are replaced, by tag: `Vocabulary.published`."""
Form = Callable[[Value], object]
_KINDS: Mapping[str, Callable[[str], str]] = {
    "S": partial(lemmas, kind="NOUN"),
    "MD": partial(lemmas, kind="VERB"),
    "EV": partial(lemmas, kind="NOUN"),
    "MA": adverb,
}


def readings_of(field: str, groups: Groups) -> dict[str, Form]:
    """Return the forms of a field by the name of the reading, the strictest first."""
    found: dict[str, Form] = {EXACT: comparable}
    if lemma := _KINDS.get(field):
        found[LEMMA] = partial(_in_form, lemma)
        if table := groups.get(field):
            found[GROUP] = partial(_in_form, partial(_published, lemma, _by_lemma(lemma, table)))
    return found


def _in_form(form: Callable[[str], str], value: Value) -> object:
    return form(" ".join(value.casefold().split())) if isinstance(value, str) else value


def _published(lemma: Callable[[str], str], table: Mapping[str, str], value: str) -> str:
    return table.get(lemma(value), lemma(value))


def _by_lemma(lemma: Callable[[str], str], table: Mapping[str, str]) -> dict[str, str]:
    return {lemma(value): lemma(published) for value, published in table.items()}
