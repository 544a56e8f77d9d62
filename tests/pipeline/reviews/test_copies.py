"""Better copies of clips: they take the place, the review and the caption of poorer ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import pytest

from pipeline.captions.reply_cache import has_replies
from pipeline.core.config import checked
from pipeline.core.records import Caption, Clip, Verdict
from pipeline.core.store import Dataset
from pipeline.plan.build_plan import make_plan
from pipeline.plan.request import BuildRequest
from pipeline.plan.workspace import Workspace
from pipeline.publish.seen_clips import seen_clips
from pipeline.publish.verify import verify
from pipeline.reviews.decisions import append_decisions
from tests.support import records
from tests.support.builds.real_builds import contents
from tests.support.datasets.built_dataset import build_here
from tests.support.media.films import write_film
from tests.support.media.moving_pictures import pan, shaded, textured
from tests.support.servers.caption_server import Answer, CaptionServer, good_what


def film_and_copy(root: Path) -> tuple[Path, Path]:
    """Film of two scenes of a clip each, and a copy of a quarter of its pixels at a low rate."""
    pictures = [picture_HWC for place in (textured(), shaded()) for picture_HWC in pan(place, 1, 0, frames=66)]
    small = [cv2.resize(picture_HWC, (360, 240), interpolation=cv2.INTER_AREA) for picture_HWC in pictures]
    fine = write_film(root / "fine.mp4", pictures, fps=24, options={"preset": "superfast"})
    return fine, write_film(root / "poor.mp4", small, fps=24, options={"preset": "superfast", "crf": "34"})


@pytest.mark.slow
def test_a_better_copy_takes_the_place_and_the_review_of_a_poor_one(tmp_path: Path) -> None:
    (fine, poor), data = film_and_copy(tmp_path), Dataset(tmp_path / "data")

    def build(*films: Path, **selection: Any) -> dict[str, list[bool]]:
        """Build; return whether each clip of each film is kept, by the film's name."""
        config = checked({"looks": {"text": False}, "selection": selection}, "test")
        build_here(BuildRequest(films=films, out=data.root, config=config))
        assert verify(data) == []
        return {folder.film.name: [row.keep for row in folder.read("verdicts", Verdict)] for folder in data.folders()}

    clips = len(build(poor)["poor.mp4"])
    [folder] = data.folders()
    clip = folder.read("clips", Clip)[1]
    append_decisions(data.root / "review.jsonl", [records.decision_about(clip, folder.film.sha256, "EV", "harbour")])
    report = data.root / "report.html"
    assert build(poor, fine) == {"poor.mp4": [True] * clips, "fine.mp4": [False] * clips}
    flagged = f"Better copies among them: {clips}. To keep these, set prefer = &#34;quality&#34; in [selection]."
    assert flagged in report.read_text()
    kept = build(poor, fine, prefer="quality")
    assert kept == {"poor.mp4": [False] * clips, "fine.mp4": [True] * clips}
    assert "Better copies" not in report.read_text()
    published = {seen.clip.film_id: seen.answer for seen in seen_clips(data) if seen.reviewed and seen.fate == "kept"}
    assert [answer and answer.EV for answer in published.values()] == ["harbour"]
    before = contents(data.root)
    assert build(poor, fine, prefer="quality") == kept
    assert contents(data.root) == before
    assert build(poor, fine)["poor.mp4"] == [True] * clips


@pytest.mark.slow
def test_a_better_copy_takes_the_caption_of_a_poor_one_without_a_question(tmp_path: Path) -> None:
    (fine, poor), data = film_and_copy(tmp_path), Dataset(tmp_path / "data")
    with CaptionServer(lambda _: Answer(good_what(0)), read=lambda _: 0) as server:

        def build(*films: Path) -> BuildRequest:
            captions = {"captioner": "server", "endpoint": server.address, "model": "m"}
            settings = {"looks": {"text": False}, "selection": {"prefer": "quality"}, "captions": captions}
            build_here(request := BuildRequest(films=films, out=data.root, config=checked(settings, "test")))
            assert verify(data) == []
            return request

        build(poor)
        asked = len(server.requests)
        assert asked > 0
        request = build(poor, fine)
        assert len(server.requests) == asked
        first, second = data.folders()
        given = first.read("captions", Caption)
        kept = [seen for seen in seen_clips(data) if seen.fate == "kept"]
        assert [seen.clip.film_id for seen in kept] == [second.film_id] * len(given)
        for seen, caption in zip(kept, given, strict=True):
            copied = {"clip_id": seen.clip.clip_id, "flags": (*caption.flags, f"copied: {caption.clip_id}")}
            assert seen.caption == caption.model_copy(update=copied)
            assert has_replies(first, caption.clip_id)
        card = (data.root / "README.md").read_text()
        assert f"{len(given)} of the kept clips have the caption of a poorer copy" in card

        assert make_plan(request, Workspace(request.out)).unfinished == {}
        # without the poor film, the model is asked about the fine one
        record = data.record
        data.save(record.model_copy(update={"films": record.films[1:]}))
        alone = request.model_copy(update={"films": (str(fine),)})
        [left] = make_plan(alone, Workspace(request.out)).unfinished.values()
        assert [stage.name for stage in left] == ["screened", "captions"]
