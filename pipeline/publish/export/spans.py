"""Spans of an export's clips in their films, each with the fingerprint of what its file is made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.core.config import FilmSettings
from pipeline.core.ingredients import fingerprint
from pipeline.core.records import Crop
from pipeline.core.store import ClipFormat, FilmFolder
from pipeline.publish.export.recut import VERSION, CutLog, Span


def settings_of_cut(folder: FilmFolder) -> dict[str, Any]:
    """Return `fit`, `crf` and `fields` of a film's clips; the last planned build may have others, and cut nothing."""
    record = folder.stage_record("cut")
    assert record, "films that are not built to the end are left out"
    film, clips = record.ingredients["film"], record.ingredients["clips"]
    return {"fit": clips["fit"], "crf": clips["crf"], "fields": film.get("fields", FilmSettings().fields)}


def spans_to_cut(log: CutLog, folder: FilmFolder, starts: Mapping[str, float], clips: ClipFormat) -> tuple[Span, ...]:
    """Return the spans of a film whose files are not in the export yet.

    Args:
        log: of the export.
        folder: of the film.
        starts: start of each span in seconds, by its file in the export.
        clips: format of the clips to cut.
    """
    [crop] = folder.read("crop", Crop)
    film = folder.film
    same = {
        "version": VERSION,
        "film": film.sha256,
        "crop": crop.model_dump(mode="json"),
        "clips": clips.model_dump(mode="json"),
        "transfer": film.transfer,
        **settings_of_cut(folder),
    }
    spans = (Span(file, fingerprint(same | {"start_seconds": start}), start) for file, start in starts.items())
    return tuple(span for span in spans if log.known(span.file, span.made_from) is None)
