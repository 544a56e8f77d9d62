"""Language tags in one form: films, sound and subtitles name a language as `ja`, `jpn` or `ja-JP`."""

from __future__ import annotations


def language_of(text: str | None) -> str | None:
    """Return the language of a tag such as `jpn` or `pt-BR` in its shortest form, `ja` or `pt`; None if unknown."""
    from langcodes import Language  # takes 60 ms, which no other command should wait for
    from langcodes.tag_parser import LanguageTagError

    try:
        language = Language.get((text or "und").strip())
    except LanguageTagError:
        return None
    return language.language if language.language != "und" and language.is_valid() else None
