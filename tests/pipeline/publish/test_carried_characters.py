"""Characters carried to the clips of a built film that the network of the package finds alike."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from flows.web.review_clips import ReviewedClips, ReviewTask
from pipeline.core.config import checked
from pipeline.core.records import Caption, Clip
from pipeline.core.store import Dataset
from pipeline.plan.build_plan import make_plan
from pipeline.plan.publish import is_published
from pipeline.plan.request import BuildRequest
from pipeline.plan.workspace import Workspace
from pipeline.publish.carried_characters import captions_by_likeness, carry_through
from pipeline.publish.verify import verify
from pipeline.reviews.applied import load_reviews
from pipeline.reviews.carry import Guess
from pipeline.reviews.decisions import append_decisions
from tests.support import records
from tests.support.datasets.built_dataset import SMALL, build_here
from tests.support.media.films import make_film
from tests.support.media.painted_clips import make_cast

CARRY = {"embed": {"pictures": "own"}, "review": {"carry": 0.0}}


class Film:
    """Film of three scenes, a clip each, embedded by the network of the package."""

    def __init__(self, root: Path) -> None:
        self.root, self.data = root, Dataset(root / "data")
        self.file = self.data.root / "review.jsonl"

    def build(self, **sections: Any) -> BuildRequest:
        config = checked({**SMALL, **CARRY, **sections}, "test")
        request = BuildRequest(
            films=(self.root / "film.mp4",), out=self.data.root, cast=self.root / "cast", config=config
        )
        make_plan(request, Workspace(request.out))  # the path of the copied film
        build_here(request)
        assert verify(self.data) == []
        assert is_published(self.data, config)
        return request

    @property
    def clips(self) -> list[Clip]:
        return self.data.folders()[0].read("clips", Clip)

    def review(self, place: int, field: str, value: Any, shift: float = 0.0) -> None:
        clip = self.clips[place]
        moved = clip.model_copy(
            update={"start_seconds": clip.start_seconds + shift, "end_seconds": clip.end_seconds + shift}
        )
        append_decisions(self.file, [records.decision_about(moved, self.data.record.films[0].sha256, field, value)])

    def captions(self) -> list[dict[str, Any]]:
        found = {}
        for path in (self.data.root / "shards").rglob("*.tar"):
            with tarfile.open(path) as tar:
                for entry in tar:
                    if entry.name.endswith(".json") and (file := tar.extractfile(entry)):
                        found[entry.name.removesuffix(".json")] = json.loads(file.read())["caption"]
        return [found[clip.clip_id] for clip in self.clips]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("original")
    make_film(root / "film.mp4", frames=240, scenes=[0, 80, 160])
    make_cast(root / "cast", "Ponyo", "Sosuke")
    Film(root).build()
    return root


@pytest.fixture
def film(original: Path, tmp_path: Path) -> Film:
    return Film(Path(shutil.copytree(original, tmp_path / "copy")))


def test_characters_are_published_where_no_reviewer_and_no_captioner_named_any(film: Film) -> None:
    (before, *_) = film.captions()
    assert before["characters"] is None
    film.review(0, "characters", ["Ponyo"])
    film.review(0, "actor", "Ponyo")
    film.review(1, "characters", [])
    film.build()
    reviewed, empty, carried = film.captions()
    assert (reviewed["characters"], reviewed["actor"], reviewed["flags"]) == (["Ponyo"], "Ponyo", before["flags"])
    assert (empty["characters"], "characters" in empty["reviewed"]) == ([], True)
    assert carried["characters"] in (["Ponyo"], [])
    assert carried["reviewed"] == []
    assert [flag.partition(":")[0] for flag in carried["flags"]] == ["by likeness"]
    film.review(2, "characters", ["Sosuke"])
    film.build()
    assert film.captions()[2] == {
        **carried,
        "characters": ["Sosuke"],
        "actor": None,
        "flags": [],
        "reviewed": ["characters"],
    }


def test_without_the_setting_nothing_is_published_and_the_page_still_says_what_it_guesses(film: Film) -> None:
    film.review(0, "characters", ["Ponyo"])
    film.build(review={})
    assert [caption["characters"] for caption in film.captions()] == [["Ponyo"], None, None]
    assert not (film.data.folders()[0].path / "carried.parquet").exists()
    rows = ReviewedClips(film.data, ReviewTask(film.file, "anna")).rows()
    assert [[text.partition(",")[0] for text in row["doubts"]][:1] for row in rows][1:] == [["looks like Ponyo"]] * 2
    first = max(rows, key=lambda row: row["doubt"])
    assert first["doubts"][-1] == "its review tells much about other clips"
    assert rows[0]["doubt"] == min(row["doubt"] for row in rows)
    blind = ReviewedClips(film.data, ReviewTask(film.file, "ben", blind=True)).rows()
    assert all("doubts" not in row for row in blind)


def test_reviews_of_another_cut_are_carried_from_the_clips_that_they_match(film: Film) -> None:
    film.review(1, "characters", ["Sosuke"], shift=0.1)
    found = carry_through(film.data, load_reviews(film.data, film.file).standings)
    assert found.guesses.keys() == {film.clips[place].clip_id for place in (0, 2)}
    assert set(found.next_clips) == found.guesses.keys()
    assert {guess.characters for guess in found.guesses.values()} == {("Sosuke",)}


def test_a_dataset_without_vectors_has_no_guesses(film: Film) -> None:
    film.review(0, "characters", ["Ponyo"])
    film.build(embed={})
    (film.data.folders()[0].path / "embed.json").unlink(missing_ok=True)
    assert carry_through(film.data, load_reviews(film.data, film.file).standings).guesses == {}


def test_a_guess_fills_only_what_is_open_and_only_if_it_is_sure_enough() -> None:
    guess = Guess(("Sosuke", "Ponyo"), "Ponyo", 0.8)
    known = Caption(clip_id="b", source="m", characters=(), S="wave")
    faulty = Caption(clip_id="c", source="m", fault="no usable reply")
    rows = [Caption(clip_id="a", source="rules"), known, faulty]
    guesses = dict.fromkeys("abc", guess)
    assert captions_by_likeness(rows, guesses, 0.81, ()) == []
    (found,) = captions_by_likeness(rows, guesses, 0.8, ("Ponyo", "Sosuke"))
    assert found == Caption(
        clip_id="a", source="rules", characters=("Ponyo", "Sosuke"), actor="Ponyo", flags=("by likeness: 80% sure",)
    )
