"""Scenes, damage and clips of a film, all from a single decode (`cutting/`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pipeline.core.child_process import call_in_child
from pipeline.core.config import ClipSettings, FilmSettings, SceneSettings
from pipeline.core.progress import Progress
from pipeline.core.records import Clip, Crop, FieldKind, FieldsDone, Film, Record, is_clip_id
from pipeline.core.stage import Outcome, Resources, Stage
from pipeline.core.store import FilmFolder
from pipeline.video.colour import mapping_of

FIELDS_DONE: dict[FieldKind, FieldsDone] = {
    "progressive": "progressive",
    "telecine": "telecine undone",
    "interlaced": "interlace undone",
}


@dataclass(frozen=True)
class Cut(Stage):
    """Stage `cut`: the clip files, and the tables `scenes`, `damage`, `hashes`, `clips`, and `fields` if needed.

    The kinds of fields also go into the film's record.
    """

    name: ClassVar[str] = "cut"
    version: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = ("crop",)

    film: FilmSettings
    scenes: SceneSettings
    clips: ClipSettings
    threads: int = 0
    """Threads of the decoder, 0: one per core. The result does not depend on it."""
    before_replacing: Callable[[FilmFolder, Sequence[Clip]], None] | None = None
    """Called with the new clips before those of an earlier run are deleted."""

    @property
    def resources(self) -> Resources:
        """The film itself, and the decoder's threads."""
        return Resources(reads_film=True, cpus=self.threads or 1)

    def ingredients(self) -> dict[str, Any]:
        """Settings of the sections `film`, `scenes` and `clips`."""
        return {key: getattr(self, key).ingredients() for key in ("film", "scenes", "clips")}

    def film_ingredients(self, film: Film) -> dict[str, Any]:
        """The colour mapping, for films that need one."""
        return mapping_of(film)

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        """Read the film and write its clips; delete clip files of an earlier run that are not made again.

        Raises:
            RecordError: no frame can be decoded, the decoder crashes, or the setting `fields` rejects the film.
        """
        from pipeline.stages.cutting.film_cutter import CutJob, cut_film  # `status` needs the ingredients alone

        crops = tuple(folder.read("crop", Crop))
        film, end = folder.film, self.film.end_seconds
        job = CutJob(film, crops, folder.path, end, self.scenes, self.clips, self.threads, self.film.fields)
        result = call_in_child(cut_film, job, folder.film_id, progress)
        if self.before_replacing:
            self.before_replacing(folder, result.clips)
        files = [folder.clip_path(clip.clip_id) for clip in result.clips]
        _remove_earlier(folder, {file.name for file in files})
        kinds = dict.fromkeys(row.kind for row in result.fields)
        tables: dict[str, Sequence[Record]] = {
            "scenes": result.scenes,
            "damage": result.damage,
            "hashes": result.hashes,
            "clips": result.clips,
        }
        folder.table_path("fields").unlink(missing_ok=True)
        if kinds.keys() - {"progressive"}:  # most films are, and have no such table
            tables["fields"] = result.fields
        return Outcome(
            tables=tables,
            files=tuple(str(file.relative_to(folder.path)) for file in files),
            film={"fields": tuple(FIELDS_DONE[kind] for kind in kinds) or None},
        )


def _remove_earlier(folder: FilmFolder, names: set[str]) -> None:
    """Remove clips of an earlier cut, recognised by their names; other files stay."""
    for file in (folder.path / "clips").glob("*.mp4"):
        if file.name not in names and is_clip_id(file.stem, folder.film_id) and file.is_file():
            file.unlink()
