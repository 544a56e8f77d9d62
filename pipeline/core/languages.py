"""Language tags in one form: films, sound and subtitles name a language as `ja`, `jpn` or `ja-JP`."""

from __future__ import annotations

import re

_TAG = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")
_NAMES = {
    "arabic": "ar", "chinese": "zh", "dutch": "nl", "english": "en", "filipino": "fil", "french": "fr",
    "german": "de", "hebrew": "he", "hindi": "hi", "hungarian": "hu", "indonesian": "id", "italian": "it",
    "japanese": "ja", "korean": "ko", "malay": "ms", "polish": "pl", "portuguese": "pt", "romanian": "ro",
    "russian": "ru", "spanish": "es", "swedish": "sv", "thai": "th", "turkish": "tr", "ukrainian": "uk",
    "vietnamese": "vi",
    "jp": "ja", "kr": "ko", "cn": "zh", "chs": "zh", "cht": "zh", "sc": "zh", "tc": "zh", "gb": "zh", "big5": "zh",
}  # fmt: skip
"""Words of file names that are no tags: names in English, and what fansubs write."""


def language_of(text: str | None) -> str | None:
    """Return the language of a tag such as `jpn` or `pt-BR` in its shortest form, `ja` or `pt`; None if unknown."""
    from langcodes import Language  # takes 60 ms, which no other command should wait for
    from langcodes.tag_parser import LanguageTagError

    try:
        language = Language.get((text or "und").strip())
    except LanguageTagError:
        return None
    return language.language if language.language != "und" and language.is_valid() else None


def language_of_word(word: str) -> str | None:
    """Return the language that a part of a file name means, as `ja`, `jpn`, `pt-BR`, `Japanese` or `chs`.

    Languages without a code of two letters are unknown: nearly every short word, as `sdh` or `end`, is a code of three.
    """
    if (named := _NAMES.get(word.lower())) or not _TAG.fullmatch(word):
        return named
    code = language_of(word)
    return code if code and len(code) == 2 else None
