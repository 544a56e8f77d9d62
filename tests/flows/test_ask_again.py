"""Builds that would ask the caption server again: stopped before any work, until the user decides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.core.errors import UserError
from pipeline.core.ingredients import fingerprint
from pipeline.core.measurements import Looks, Motion
from pipeline.core.records import Caption, Clip, Record
from pipeline.core.store import Dataset, FilmFolder
from pipeline.plan.build_plan import make_plan
from pipeline.plan.request import BuildRequest, Until
from pipeline.plan.workspace import Workspace
from pipeline.publish.seen_clips import seen_clips
from pipeline.publish.verify import verify
from pipeline.reviews.decisions import append_decisions
from tests.support.builds.real_builds import contents, differences, numbered_film, write_config
from tests.support.builds.rebuilt_films import animegamer, redone, request_for
from tests.support.datasets.built_dataset import build_here
from tests.support.media.films import corrupt
from tests.support.records import decision_about
from tests.support.servers.caption_server import CaptionServer, good_answer

pytestmark = pytest.mark.slow


@pytest.mark.nightly
def test_a_build_that_would_pay_twice_stops_before_any_work(tmp_path: Path) -> None:
    film, new_film, out = numbered_film(tmp_path / "a.mp4", 0), numbered_film(tmp_path / "b.mp4", 4), tmp_path / "data"
    with CaptionServer(good_answer) as server:

        def build(*arguments: object, **changes: Any) -> tuple[int, str, int]:
            """Build; return the exit code, the messages and the number of questions."""
            captions = {"captioner": "server", "endpoint": server.address, "model": "test-model", **changes}
            config = write_config(tmp_path / "config.toml", captions={"revision": "0123abcd", **captions})
            server.requests.clear()
            done = animegamer("build", *arguments, "--out", out, "--config", config)
            return done.returncode, done.stderr, len(server.requests)

        assert build(film)[::2] == (0, 4)
        assert "test-model at revision 0123abcd, temperature 0" in (out / "README.md").read_text()
        record = (out / "dataset.json").read_bytes()
        code, said, asked = build(film, new_film, temperature=1)
        assert (code, asked) == (1, 0)
        assert "4 clips with a good caption would be captioned again (temperature (0.0 to 1.0): 4 clips)" in said
        assert (out / "dataset.json").read_bytes() == record
        assert len(Dataset(out).folders()) == 1 or not Dataset(out).folders()[1].stage_record("crop")
        assert build(film, new_film, temperature=1, keep_old=True)[::2] == (0, 4)
        kept = [row.is_kept for folder in Dataset(out).folders() for row in folder.read("captions", Caption)]
        assert kept == [True] * 4 + [False] * 4
        assert "4 of the kept clips have a caption from an earlier form" in (out / "README.md").read_text()
        assert "4 of the kept clips have a caption from an earlier form" in (out / "report.html").read_text()
        assert build(film, new_film, "--ask-again", temperature=1)[::2] == (0, 4)
        assert build(film, new_film, temperature=1)[::2] == (0, 0)
        assert animegamer("verify", out).returncode == 0


FAST = (0.001, 0.002, 0.003, 0.004)
"""Level edges under which any moving clip is at level 5."""


@pytest.fixture
def server() -> Iterator[CaptionServer]:
    with CaptionServer(good_answer) as server:
        yield server


def request_of(
    folder: Path, server: CaptionServer, *, motion: dict[str, Any] | None = None, **changes: Any
) -> BuildRequest:
    """Request for a film of four clips, with captions by the server."""
    film = folder / "film.mp4"
    if not film.exists():
        numbered_film(film, 0)
    captions = {"captioner": "server", "endpoint": server.address, "model": "test-model", **changes}
    return request_for(film, out=folder / "data", captions=captions, motion=motion or {})


def left_in(request: BuildRequest) -> list[str]:
    """Plan the build; return the names of the stages left of its films."""
    unfinished = make_plan(request, Workspace(request.out)).unfinished
    return [stage.name for stages in unfinished.values() for stage in stages]


def test_new_level_edges_stop_the_build_before_anything_is_saved(tmp_path: Path, server: CaptionServer) -> None:
    redone(request_of(tmp_path, server))
    record, asked = (tmp_path / "data" / "dataset.json").read_bytes(), len(server.requests)
    with pytest.raises(UserError, match=r"4 clips with a good caption.*\(level: 4 clips\)"):
        left_in(request_of(tmp_path, server, motion={"edges": FAST}))
    assert (tmp_path / "data" / "dataset.json").read_bytes() == record
    assert left_in(request_of(tmp_path, server)) == []
    ran = redone(request_of(tmp_path, server, motion={"edges": FAST}, keep_old=True))
    assert list(ran.values()) == [["screened", "captions"]]
    assert len(server.requests) == asked


def test_a_damaged_file_is_left_to_the_run_of_its_film_and_no_table_costs_a_question(
    tmp_path: Path, server: CaptionServer
) -> None:
    request = request_of(tmp_path, server)
    (film_id,) = redone(request)
    asked, film = len(server.requests), tmp_path / "data" / "films" / film_id
    for table in ("screened.parquet", "clips.parquet", "captions.parquet"):
        corrupt(film / table, 0, 1)
        assert "captions" in left_in(request)
        redone(request)
        assert left_in(request) == []
    assert len(server.requests) == asked
    corrupt(next((film / "replies").iterdir()), 0, 1)
    assert "captions" in left_in(request), "its own run raises the error"


def as_of_version_1(folder: FilmFolder, stage: str, record: type[Record]) -> None:
    """Leave the result of a stage as its first version made it, without the fields that its table has gained since."""
    made, path = folder.stage_record(stage), folder.table_path(stage)
    assert made is not None
    new = [name for name, field in record.model_fields.items() if not field.is_required()]
    assert new
    pq.write_table(pq.read_table(path).drop_columns(new), path)
    ingredients = made.ingredients | {"stage": f"{stage} 1"}
    files = folder.marks(made.files)
    changes = {"ingredients": ingredients, "fingerprint": fingerprint(ingredients), "files": files}
    folder.save_stage_record(made.model_copy(update=changes))


def test_new_fields_are_measured_on_the_clips_and_published_without_a_question(
    tmp_path: Path, server: CaptionServer
) -> None:
    request, data = request_of(tmp_path, server).model_copy(update={"until": Until.publish}), Dataset(tmp_path / "data")
    build_here(request)
    (folder,) = data.folders()
    clip = folder.read("clips", Clip)[0]
    append_decisions(data.root / "review.jsonl", [decision_about(clip, folder.film.sha256, "EV", "harbour")])
    build_here(request)
    before, published, asked = contents(data.root), seen_clips(data), len(server.requests)

    as_of_version_1(folder, "looks", Looks)
    as_of_version_1(folder, "motion", Motion)
    assert (folder.read("looks", Looks)[0].sharpness, folder.read("motion", Motion)[0].camera) == (None, None)
    index = data.root / "shards" / "index.json"
    index.write_text(json.dumps(json.loads(index.read_bytes()) | {"schema": 2}))
    with pytest.raises(UserError, match="run `animegamer build`"):
        seen_clips(data)

    assert left_in(request)[0] == "looks"
    build_here(request)
    assert len(server.requests) == asked
    assert differences(before, contents(data.root)) == []
    assert seen_clips(data) == published
    assert (published[0].caption and published[0].caption.EV) == "harbour"
    assert all(seen.looks and seen.looks.sharpness for seen in published)
    assert verify(data) == []
