"""Captions of an export: instruction line, sentence or tags, with a trigger word and other names for characters.

    instruction   Character: Ponyo; Motion: slowly run; Background: forest.
    sentence      Ponyo runs slowly through the forest.
    tags          Ponyo, run, slowly, forest

A caption is one line: SimpleTuner (documentation/DATALOADER.md, `textfile`) and OneTrainer (`LoadMultipleTexts`) take
every line of a text file as a caption of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pipeline.core.errors import UserError
from pipeline.core.plain_text import is_text, printable
from pipeline.core.records import Caption
from prompts.tags import instruction


class CaptionForm(StrEnum):
    """Forms of a caption."""

    instruction = "instruction"
    sentence = "sentence"
    tags = "tags"


@dataclass(frozen=True)
class CaptionStyle:
    """Form of the captions, the word they all start with, and the names that replace those of the data set."""

    form: CaptionForm
    trigger: str = ""
    names: Mapping[str, str] = field(default_factory=dict)

    def of(self, caption: Caption | None) -> str | None:
        """Return the caption of a clip; None if it has none of this form."""
        if caption is None or caption.fault:
            return None
        text = " ".join(_FORMS[self.form](self._renamed(caption)).split())
        if not text:
            return None
        return f"{self.trigger}, {text}" if self.trigger else text

    def _renamed(self, caption: Caption) -> Caption:
        names = self.names
        characters = caption.characters and tuple(names.get(name, name) for name in caption.characters)
        actor = caption.actor and names.get(caption.actor, caption.actor)
        sentence = caption.sentence and self._with_names(caption.sentence)
        return caption.model_copy(update={"characters": characters, "actor": actor, "sentence": sentence})

    def _with_names(self, sentence: str) -> str:
        if not self.names:
            return sentence
        longest_first = sorted(self.names, key=len, reverse=True)
        known = "|".join(map(re.escape, longest_first))
        return re.sub(rf"(?<!\w)(?:{known})(?!\w)", lambda match: self.names[match[0]], sentence)


def parse_name(text: str) -> tuple[str, str]:
    """Parse `Ponyo=p0ny0` into the name of the data set and the one to write.

    Raises:
        UserError: it is not of this form.
    """
    old, _, new = (part.strip() for part in text.partition("="))
    if not old or not new:
        raise UserError(f"{printable(text)!r} is not NAME=other, as in Ponyo=p0ny0")
    return old, new


def check_style(style: CaptionStyle, characters: Iterable[str]) -> None:
    """Refuse words that a trainer would not read as they are meant.

    Args:
        style: the style.
        characters: names in the chosen clips.

    Raises:
        UserError: a word has more than one line, or a name or trigger has a comma among tags, which are divided by it.
    """
    known = set(characters)
    for name in style.names:
        if name not in known:
            raise UserError(
                f"--name {printable(name)}=...: no chosen clip names this character; write it as it is there"
            )
    written = [style.trigger, *(style.names.get(name, name) for name in sorted(known))]
    for word in filter(None, written):
        if not is_text(word) or len(word.splitlines()) > 1:
            raise UserError(f"{printable(word)!r} is not one line of text; choose another word")
        if "," in word and style.form == CaptionForm.tags:
            raise UserError(
                f"{printable(word)!r} has a comma, and commas divide tags; give it another name with --name"
            )


def _instruction(caption: Caption) -> str:
    return instruction(caption.characters, caption.S, caption.MD, caption.EV, caption.MA, caption.actor)


def _sentence(caption: Caption) -> str:
    return caption.sentence or ""


def _tags(caption: Caption) -> str:
    """Names, the subject if it is none of them, motion, manner and place, each once."""
    names = caption.characters or ()
    subject = None if caption.actor in names else caption.actor or caption.S
    return ", ".join(dict.fromkeys(filter(None, (*names, subject, caption.MD, caption.MA, caption.EV))))


_FORMS = {CaptionForm.instruction: _instruction, CaptionForm.sentence: _sentence, CaptionForm.tags: _tags}
