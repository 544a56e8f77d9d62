"""Dialogue of films in made datasets: tables as the stage `dialogue` writes them."""

from pipeline.core.dialogue import LeftOut, SpokenLine, SubtitleTrack
from pipeline.core.store import FilmFolder


def line(start: float, end: float, text: str, speaker: str | None = None, language: str | None = "ja") -> SpokenLine:
    """Return a line in seconds of the film."""
    return SpokenLine(start_seconds=start, end_seconds=end, text=text, speaker=speaker, language=language)


def write_dialogue(folder: FilmFolder, *lines: SpokenLine) -> None:
    """Write the lines of a film, from a file beside it that also had three signs."""
    track = SubtitleTrack(
        source=".ja.ass",
        codec="ass",
        language="ja",
        title=None,
        chosen=True,
        remark=None,
        lines=len(lines),
        left_out=(LeftOut(rule="sign by style", events=3),),
    )
    folder.write("subtitles", [track])
    folder.write("dialogue", lines)
