"""Dialogue of a film, read from its subtitles: every track, and the lines of the chosen one.

Times are those of the film, so that new clips need no new dialogue. The content of files beside the film is an
ingredient of this stage alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipeline.core.child_process import call_in_child
from pipeline.core.config import DialogueSettings
from pipeline.core.dialogue import SpokenLine, SubtitleTrack
from pipeline.core.film_settings import OneFilmSettings, given_language
from pipeline.core.hashes import Hashes, film_hash
from pipeline.core.progress import Progress
from pipeline.core.records import Film, RecordError, SubtitleFile, TextTrack
from pipeline.core.stage import Outcome, Resources, Stage
from pipeline.core.store import FilmFolder
from pipeline.remote.film_cache import film_file
from pipeline.remote.objects import RemoteError


@dataclass(frozen=True)
class ReadDialogue(Stage):
    """Stage `dialogue`: tables `subtitles` and `dialogue`."""

    name: ClassVar[str] = "dialogue"
    version: ClassVar[int] = 2
    needs: ClassVar[tuple[str, ...]] = ()

    settings: DialogueSettings
    films: Sequence[OneFilmSettings] = ()
    sound: str | None = None
    """Language of the sound track that is kept, where a film has it."""

    @property
    def resources(self) -> Resources:
        """The film itself."""
        return Resources(reads_film=True)

    def ingredients(self) -> dict[str, Any]:
        """The settings."""
        return {"dialogue": self.settings.ingredients()}

    def film_ingredients(self, film: Film) -> dict[str, Any]:
        """The subtitle files beside the film, and the language of its speech, as far as they are known."""
        made_from: dict[str, Any] = {}
        if film.subtitle_files:
            made_from["files"] = {file.ending: file.sha256 for file in film.subtitle_files}
        if self.settings.language is None:
            spoken = {"speech": given_language(self.films, film.film_id, film.source), "sound": self.sound}
            made_from |= {name: language for name, language in spoken.items() if language}
        return made_from

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        """Read the subtitles in a child process, since they may be as hostile as a film.

        Raises:
            RecordError: the film cannot be opened, or a file beside it has changed since the build was planned.
        """
        film = folder.film
        files = [(file, _local(file, folder, progress)) for file in film.subtitle_files]
        speech = given_language(self.films, film.film_id, film.source)
        job = (film, files, self.settings.language, speech, self.sound)
        tracks, lines = call_in_child(_read, job, folder.film_id, progress)
        inside = tuple(
            TextTrack(codec=track.codec, language=track.language, title=track.title)
            for track in tracks
            if track.source.startswith("stream ")
        )
        return Outcome({"subtitles": tracks, "dialogue": lines}, film={"text_tracks": inside})


def _read(
    job: tuple[Film, Sequence[tuple[SubtitleFile, Path]], str | None, str | None, str | None], progress: Progress
) -> tuple[list[SubtitleTrack], list[SpokenLine]]:
    from pipeline.stages.subtitles.tracks import read_subtitles  # its packages are slow to import

    return read_subtitles(*job, progress)


def _local(file: SubtitleFile, folder: FilmFolder, progress: Progress) -> Path:
    """Return the path of a file beside the film on this machine; from an address, it is fetched."""
    try:
        path = film_file(file.source, folder.path.parents[1], progress)
        is_same = film_hash(path, Hashes(folder.path / ".cache" / "hashes.json"), progress) == file.sha256
    except (RemoteError, RecordError) as error:
        raise RecordError(folder.film_id, f"its subtitles {file.ending}: {error}") from error
    if not is_same:
        reason = f"its subtitles {file.ending} have changed since the build was planned; run the same command again"
        raise RecordError(folder.film_id, reason)
    return path
