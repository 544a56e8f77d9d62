"""Sound of a film's clips: an audio file for each, and its loudness, silence and speech.

The stage reads the film's sound track alone. The clip files, their hashes and all that was measured on them stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipeline.core.child_process import call_in_child
from pipeline.core.config import SoundSettings
from pipeline.core.film_settings import OneFilmSettings, given_language
from pipeline.core.progress import Progress
from pipeline.core.records import Clip, Film, is_clip_id
from pipeline.core.stage import Outcome, Resources, Stage
from pipeline.core.store import FilmFolder


@dataclass(frozen=True)
class KeepSound(Stage):
    """Stage `sound`: the sound files, and the table `sound`, which is empty for a film without a sound track."""

    name: ClassVar[str] = "sound"
    version: ClassVar[int] = 3
    needs: ClassVar[tuple[str, ...]] = ("cut",)

    settings: SoundSettings
    films: Sequence[OneFilmSettings] = ()

    @property
    def resources(self) -> Resources:
        """The film itself, and one CPU."""
        return Resources(reads_film=True)

    def ingredients(self) -> dict[str, Any]:
        """Settings of the section `sound`."""
        return {"sound": self.settings.ingredients()}

    def film_ingredients(self, film: Film) -> dict[str, Any]:
        """The language that `[[films]]` gives the film, if it chooses the track."""
        given = given_language(self.films, film.film_id, film.source)
        return {"speech": given} if given and self.settings.language is None else {}

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        """Read the sound track and write the clips' sound; delete sound files of clips that are gone.

        Raises:
            RecordError: the film cannot be opened, or the decoder crashes.
        """
        from pipeline.stages.hearing.clip_sounds import SoundJob, write_sounds  # `status` needs the ingredients alone

        film = folder.film
        language = self.settings.language or given_language(self.films, film.film_id, film.source)
        job = SoundJob(Path(film.source), folder.path, tuple(folder.read("clips", Clip)), language)
        rows = call_in_child(write_sounds, job, folder.film_id, progress)
        files = [folder.sound_path(row.clip_id) for row in rows]
        for file in set((folder.path / "clips").glob("*.m4a")).difference(files):
            if is_clip_id(file.stem, folder.film_id):
                file.unlink()
        return Outcome(tables={"sound": rows}, files=tuple(str(file.relative_to(folder.path)) for file in files))
