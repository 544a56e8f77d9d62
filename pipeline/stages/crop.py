"""Crops of a film: the picture without its black borders and, if asked, without overlays (`cropping/`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pipeline.core.child_process import call_in_child
from pipeline.core.config import CropSettings
from pipeline.core.progress import Progress
from pipeline.core.records import Film
from pipeline.core.stage import Outcome, Resources, Stage
from pipeline.core.store import FilmFolder
from pipeline.video.colour import is_mapped, mapping_of


@dataclass(frozen=True)
class FindCrop(Stage):
    """Stage `crop`: the part of the picture without black borders."""

    name: ClassVar[str] = "crop"
    version: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = ()

    settings: CropSettings
    avoid_overlays: bool = False
    """Crop logos and subtitles away too, if that is cheap."""

    @property
    def resources(self) -> Resources:
        """The film itself."""
        return Resources(reads_film=True)

    def ingredients(self) -> dict[str, Any]:
        """The settings; the avoidance of overlays only if it is on."""
        avoided = {"avoid_overlays": True} if self.avoid_overlays else {}
        return {"settings": self.settings.ingredients(), **avoided}

    def film_ingredients(self, film: Film) -> dict[str, Any]:
        """The colour mapping, for films whose dark levels it changes."""
        return mapping_of(film) if is_mapped(film.transfer) else {}

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        """Write the table `crop`: a row for each stretch of film. The keyframes are decoded in a child process.

        Raises:
            RecordError: the film cannot be opened, or crashes the decoder.
        """
        from pipeline.stages.cropping.film_crops import CropJob, find_crops, whole_picture  # slow to import

        if not self.settings.enabled:
            warnings = ["overlays not avoided: [crop] enabled = false keeps them"] if self.avoid_overlays else []
            return Outcome(tables={"crop": [whole_picture(folder.film, *warnings)]})
        job = CropJob(folder.film, self.settings, self.avoid_overlays)
        return Outcome(tables={"crop": call_in_child(find_crops, job, folder.film_id, progress)})
