"""Spans of an export's clips in their films, each with the fingerprint of what its file is made from."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.core.config import Config
from pipeline.core.ingredients import fingerprint
from pipeline.core.records import Crop
from pipeline.core.store import ClipFormat, FilmFolder
from pipeline.publish.export.recut import VERSION, CutLog, Span


def spans_to_cut(
    log: CutLog, folder: FilmFolder, starts: Mapping[str, float], clips: ClipFormat, config: Config
) -> tuple[Span, ...]:
    """Return the spans of a film whose files are not in the export yet.

    Args:
        log: of the export.
        folder: of the film.
        starts: start of each span in seconds, by its file in the export.
        clips: format of the clips to cut.
        config: of the data set.
    """
    [crop] = folder.read("crop", Crop)
    film = folder.film
    same = {
        "version": VERSION,
        "film": film.sha256,
        "crop": crop.model_dump(mode="json"),
        "clips": clips.model_dump(mode="json"),
        "fit": config.clips.fit,
        "crf": config.clips.crf,
        "fields": config.film.fields,
        "transfer": film.transfer,
    }
    spans = (Span(file, fingerprint(same | {"start_seconds": start}), start) for file, start in starts.items())
    return tuple(span for span in spans if log.known(span.file, span.made_from) is None)
