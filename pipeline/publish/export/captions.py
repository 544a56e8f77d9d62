"""Captions of an export: instruction line, sentence or tags, with a trigger word and other names for characters.

    instruction   Character: Ponyo; Motion: slowly run; Background: forest.
    sentence      Ponyo runs slowly through the forest.
    tags          Ponyo, run, slowly, forest

A caption is one line, because SimpleTuner (documentation/DATALOADER.md, `textfile`) and OneTrainer
(`LoadMultipleTexts`) read every line of a text file as a separate caption.

Speech stands in quotes, verbatim and in its own language, in the same paragraph, as models with sound read it (LTX-2's
guide to prompts): Ponyo runs. Ponyo says: "宗介!"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape

from pipeline.core.dialogue import SpokenLine
from pipeline.core.errors import UserError
from pipeline.core.plain_text import is_text, printable
from pipeline.core.records import Caption
from pipeline.publish.samples import instruction_of

_TEXTS = ("S", "MD", "EV", "MA", "sentence")
"""Parts of a caption that may name characters: the subject may be `Ponyo`, the place `Ponyo's house`."""


class CaptionForm(StrEnum):
    """Forms of a caption."""

    instruction = "instruction"
    sentence = "sentence"
    tags = "tags"


@dataclass(frozen=True)
class CaptionStyle:
    """Form of the captions, the word they all start with, and the names that replace the dataset's names."""

    form: CaptionForm
    trigger: str = ""
    names: Mapping[str, str] = field(default_factory=dict)

    def of(self, caption: Caption | None, said: Sequence[SpokenLine] = ()) -> str | None:
        """Return the caption of a clip, and what is said in it in quotes; None if it has no caption of this form."""
        return self.joined([caption], said)

    def joined(self, captions: Sequence[Caption | None], said: Sequence[SpokenLine] = ()) -> str | None:
        """Return the captions of clips in a row as one caption that says nothing twice, then what is said."""
        usable = (caption for caption in captions if caption and not caption.fault)
        texts = [" ".join(_FORMS[self.form](self._renamed(caption)).split()) for caption in usable]
        text = _JOINED[self.form]([text for text in texts if text])
        if not text:
            return None
        text = " ".join([text, *map(self._quoted, said)])
        return f"{self.trigger}, {text}" if self.trigger else text

    def _quoted(self, line: SpokenLine) -> str:
        speaker = self.names.get(line.speaker, line.speaker) if line.speaker else "A voice"
        quote = line.text.replace('"', "'")
        return f'{speaker} says: "{quote}"'

    def _renamed(self, caption: Caption) -> Caption:
        names = self.names
        characters = caption.characters and tuple(names.get(name, name) for name in caption.characters)
        actor = caption.actor and names.get(caption.actor, caption.actor)
        texts = {key: self._with_names(text) for key in _TEXTS if (text := getattr(caption, key))}
        return caption.model_copy(update={"characters": characters, "actor": actor, **texts})

    def _with_names(self, text: str) -> str:
        if not self.names:
            return text
        longest_first = sorted(self.names, key=len, reverse=True)
        known = "|".join(map(re.escape, longest_first))
        return re.sub(rf"(?<!\w)(?:{known})(?!\w)", lambda match: self.names[match[0]], text)


def webvtt(lines: Sequence[SpokenLine]) -> str:
    """Return the subtitles of a clip as a WebVTT file, with the speakers as voices."""
    cues = [
        f"{_timestamp(line.start_seconds)} --> {_timestamp(line.end_seconds)}\n{_voice(line)}{escape(line.text)}\n"
        for line in lines
    ]
    return "\n".join(["WEBVTT\n", *cues])


def _voice(line: SpokenLine) -> str:
    return f"<v {escape(line.speaker)}>" if line.speaker else ""


def _timestamp(seconds: float) -> str:
    minutes, milliseconds = divmod(round(1000 * seconds), 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{milliseconds // 1000:02}.{milliseconds % 1000:03}"


def parse_names(texts: Iterable[str]) -> dict[str, str]:
    """Parse texts such as `Ponyo=p0ny0` into new names, by the dataset's names.

    Raises:
        UserError: a text has another form, or gives a second new name.
    """
    names: dict[str, str] = {}
    for text in texts:
        old, _, new = (part.strip() for part in text.partition("="))
        if not old or not new:
            raise UserError(f"{printable(text)!r} is not NAME=other, as in Ponyo=p0ny0")
        if names.setdefault(old, new) != new:
            raise UserError(f"--name {printable(old)}=... is given twice; choose one of the names")
    return names


def check_style(style: CaptionStyle, characters: Iterable[str]) -> None:
    """Reject words that a trainer would misread; `characters` are the names in the chosen clips.

    Raises:
        UserError: a word has more than one line, or a comma although commas divide the tags; or two characters would
            get the same name.
    """
    known = set(characters)
    for name in style.names:
        if name not in known:
            raise UserError(f"--name {printable(name)}=...: no chosen clip has this character; check the spelling")
    written: dict[str, str] = {}
    for name in sorted(known):
        word = style.names.get(name, name)
        _check_word(word, style.form, "another name with --name")
        if (other := written.setdefault(word, name)) != name:
            raise UserError(f"{printable(other)} and {printable(name)} would both be {printable(word)}; rename one")
    _check_word(style.trigger, style.form, "another word with --trigger")


def _check_word(word: str, form: CaptionForm, remedy: str) -> None:
    if not is_text(word) or len(word.splitlines()) > 1:
        raise UserError(f"{printable(word)!r} is not one line of text; give {remedy}")
    if "," in word and form == CaptionForm.tags:
        raise UserError(f"{printable(word)!r} has a comma, and commas divide tags; give {remedy}")


def _tags(caption: Caption) -> str:
    """Names, the subject if it is none of them, motion, manner and place, each once."""
    names = caption.characters or ()
    subject = None if caption.actor in names else caption.actor or caption.S
    return ", ".join(dict.fromkeys(filter(None, (*names, subject, caption.MD, caption.MA, caption.EV))))


_FORMS: Mapping[CaptionForm, Callable[[Caption], str]] = {
    CaptionForm.instruction: instruction_of,
    CaptionForm.sentence: lambda caption: caption.sentence or "",
    CaptionForm.tags: _tags,
}


def _joined_instructions(lines: Sequence[str]) -> str:
    """The first line, then of each later line what is new in it: Character: Ponyo; Motion: run. Motion: jump."""
    before, texts = [""], []
    for line in lines:
        parts = line.removesuffix(".").split("; ")
        if new := [part for part in parts if part not in before]:
            texts.append("; ".join(new) + ".")
        before = parts
    return " ".join(texts)


_JOINED: Mapping[CaptionForm, Callable[[Sequence[str]], str]] = {
    CaptionForm.instruction: _joined_instructions,
    CaptionForm.sentence: lambda sentences: " ".join(dict.fromkeys(sentences)),
    CaptionForm.tags: lambda texts: ", ".join(dict.fromkeys(tag for text in texts for tag in text.split(", "))),
}
