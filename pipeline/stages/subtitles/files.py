"""Events of a subtitle file: ASS, SSA, SubRip or WebVTT in any usual encoding, read by pysubs2."""

from __future__ import annotations

import codecs
import html
import re
import warnings
from itertools import chain
from pathlib import Path

from pysubs2 import SSAEvent, SSAFile

LARGEST_BYTES = 64 << 20
"""Larger files are not read: the subtitles of a film with every effect drawn frame by frame take 30 MB."""
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # begins as the mark of UTF-16
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_LEGACY = {"ja": ["cp932", "euc_jp"], "zh": ["gb18030", "big5"], "ko": ["cp949"]} | {
    language: [encoding]
    for encoding, languages in {
        "cp1251": ("ru", "uk", "bg"), "cp1250": ("pl", "cs", "hu", "ro"),
        "cp1252": ("en", "fr", "de", "es", "it", "pt", "nl", "sv"),
        "cp1253": ("el",), "cp1254": ("tr",), "cp1255": ("he",), "cp1256": ("ar", "fa"), "cp874": ("th",),
    }.items()
    for language in languages
}  # fmt: skip
"""Encodings of files that are not Unicode, by language, for charset-normalizer to choose from."""
_TIME = r"\s*-?\d{1,2}:(?:\d{1,2}:\d{1,2}\.\d|\d{2}:\d{2})[^,]*"
_EVENT = re.compile(rf"(?:Dialogue|Comment):[^,]*,{_TIME},{_TIME},")
"""Start of an event that pysubs2 reads; at any other it gives up the whole file."""
_STAMP = re.compile(r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})")
_VOICE = re.compile(r"<v(?:\.[^\s>]*)?\s+([^<>]+)>")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")


class SubtitleError(Exception):
    """A subtitle file or track that cannot be read; the message is a remark on it."""


def read_events(path: Path, language: str | None = None) -> tuple[list[SSAEvent], int]:
    """Return the events of a file, and the number of those that cannot be read. Raises SubtitleError or OSError."""
    if (size := path.stat().st_size) > LARGEST_BYTES:
        raise SubtitleError(f"{size >> 20} MiB are no subtitles of a film")
    return parse(decoded(path.read_bytes(), language))


def decoded(data: bytes, language: str | None = None) -> str:
    """Return the text of a file in UTF-8, UTF-16, or an encoding that charset-normalizer finds."""
    encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    if encoding is None and 0 in data[:2]:  # subtitles start with a character of ASCII
        encoding = "utf-16-be" if data[0] == 0 else "utf-16-le"
    if encoding is None:
        try:
            return data.decode()
        except UnicodeDecodeError:
            encoding = _legacy(data, language or "")
    return data.decode(encoding, errors="replace")


def _legacy(data: bytes, language: str) -> str:
    from charset_normalizer import from_bytes  # slow to import, and needed for few files

    every = list(dict.fromkeys(chain.from_iterable(_LEGACY.values())))
    for encodings in (_LEGACY.get(language, every), every):  # a name may state a wrong language
        if best := from_bytes(data, cp_isolation=encodings).best():
            return best.encoding
    raise SubtitleError("its encoding is not known; save it as UTF-8")


def parse(text: str) -> tuple[list[SSAEvent], int]:
    """Return the events in the text of a file, and the number of those that cannot be read. Raises SubtitleError."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    if re.search(r"^[ \t]*\[Events\]", text, re.IGNORECASE | re.MULTILINE):
        return _substation(text)
    if text.lstrip("\ufeff \n").startswith("WEBVTT"):
        return _timed(text, "vtt"), 0
    if "-->" in text:
        return _timed(text, "srt"), 0
    raise SubtitleError("it holds no events of ASS, SSA, SubRip or WebVTT")


def _substation(text: str) -> tuple[list[SSAEvent], int]:
    """Read the events alone: fonts, pictures and styles may be large or malformed, and are not needed."""
    lines = [line.strip() for line in text.split("\n") if line.lstrip().startswith(("Dialogue:", "Comment:"))]
    readable = [line for line in lines if _EVENT.match(line)]
    version = "ssa" if re.search(r"^[ \t]*\[V4 Styles\]", text, re.IGNORECASE | re.MULTILINE) else "ass"
    return _read("\n".join(["[Events]", *readable]), version), len(lines) - len(readable)


def _timed(text: str, version: str) -> list[SSAEvent]:
    if version == "vtt":  # pysubs2 would add notes, and names of cues, to the cue before
        blocks = re.split(r"\n{2,}", re.sub(r"<[\d:.]+>", "", text))  # times inside of cues, as for karaoke
        text = "\n\n".join(block[block.rfind("\n", 0, block.index("-->")) + 1 :] for block in blocks if "-->" in block)
        text = re.sub(r"^.*-->.*$", lambda line: _STAMP.sub(_padded, line[0]), text, flags=re.MULTILINE)
    events = _read(re.sub(r"\n{3,}", "\n\n", text), version, keep_unknown_html_tags=True)
    return [cue(event.text, event.start, event.end) for event in events]


def _padded(stamp: re.Match[str]) -> str:
    """Return a time as WebVTT wants it, and pysubs2 reads it, for one such as `0:1:5.2`."""
    hours, minutes, seconds = (int(part or 0) for part in stamp.groups()[:3])
    return f"{hours:02}:{minutes:02}:{seconds:02}.{stamp[4]:0<3}"


def cue(text: str, start: int, end: int) -> SSAEvent:
    """Return a cue of SubRip, WebVTT or timed text as an event, between times in ms; its voice is the speaker."""
    voice = _VOICE.search(text)
    name = html.unescape(voice[1]).strip() if voice else ""
    return SSAEvent(start=start, end=end, name=name, text=html.unescape(_TAG.sub("", text)).replace("\n", r"\N"))


def _read(text: str, version: str, **options: bool) -> list[SSAEvent]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about fields that we do not use
        return list(SSAFile.from_string(text, format_=version, **options))
