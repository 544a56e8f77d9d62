"""Reviews in published data: values, verdicts, fingerprints, other cuts and other films; on a film really cut."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.config import checked
from pipeline.core.progress import silent
from pipeline.core.records import Caption, Clip, Verdict
from pipeline.core.store import Dataset
from pipeline.plan.build_plan import make_plan
from pipeline.plan.publish import is_published
from pipeline.plan.request import BuildRequest
from pipeline.plan.status import review_lines
from pipeline.plan.workspace import Workspace
from pipeline.publish.verify import verify
from pipeline.reviews.applied import carried_over, load_reviews, read_reviewed, with_reviews
from pipeline.reviews.decisions import CAPTION_FIELDS, Decision, append_decisions
from tests.support import records
from tests.support.builds.real_builds import contents, differences
from tests.support.datasets.built_dataset import SMALL, build_here
from tests.support.media.films import make_film
from tests.support.media.painted_clips import make_cast

SCENES = [0, 80, 160]
FRAMES = 240


class Built:
    """Dataset of a film of three scenes, a clip each, with a cast and captions by rules."""

    def __init__(self, root: Path, **sections: Any) -> None:
        self.root = root
        self.data = Dataset(root / "data")
        self.reviews = self.data.root / "review.jsonl"
        self.request = self.with_settings(**sections)

    def with_settings(self, **sections: Any) -> BuildRequest:
        config = checked({**SMALL, **sections}, "test")
        return BuildRequest(films=(self.root / "film.mp4",), out=self.data.root, cast=self.root / "cast", config=config)

    def build(self) -> None:
        build_here(self.request)
        assert verify(self.data) == []
        assert is_published(self.data, self.request.config)

    @property
    def sha256(self) -> str:
        return self.data.record.films[0].sha256

    @property
    def clips(self) -> list[Clip]:
        return self.data.folders()[0].read("clips", Clip)

    def review(self, place: int, field: str, *values: Any, **changes: Any) -> Decision:
        """Append a decision about the clip at this place."""
        decision = records.decision_about(self.clips[place], self.sha256, field, *values, **changes)
        append_decisions(self.reviews, [decision])
        return decision

    def samples(self) -> dict[str, tuple[dict[str, Any], str]]:
        """JSON and instruction line of every published sample, by clip id."""
        members: dict[str, bytes] = {}
        for path in (self.data.root / "shards").rglob("*.tar"):
            with tarfile.open(path) as tar:
                members |= {entry.name: file.read() for entry in tar if (file := tar.extractfile(entry))}
        return {
            name.removesuffix(".json"): (json.loads(content), members[name.replace(".json", ".txt")].decode())
            for name, content in members.items()
            if name.endswith(".json")
        }

    def caption(self, place: int) -> dict[str, Any]:
        """Caption of the published sample of the clip at this place."""
        caption: dict[str, Any] = self.samples()[self.clips[place].clip_id][0]["caption"]
        return caption


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a built dataset without reviews; read-only."""
    root = tmp_path_factory.mktemp("original")
    make_film(root / "film.mp4", frames=FRAMES, scenes=SCENES)
    make_cast(root / "cast", "Ponyo", "Sosuke")
    Built(root).build()
    return root


@pytest.fixture
def built(original: Path, tmp_path: Path) -> Built:
    made = Built(Path(shutil.copytree(original, tmp_path / "copy")))
    make_plan(made.request, Workspace(made.request.out))  # the new path of the film
    return made


def test_reviews_of_a_displaced_copy_are_published_with_the_clip_that_stays() -> None:
    reviewed = {
        "one": [records.reviewed("one-1", MD="run", EV="forest"), records.reviewed("one-2", keep=False)],
        "two": [records.reviewed("two-1", EV="wood"), records.reviewed("two-3", S="fox")],
    }
    verdicts = {
        "one": [records.verdict(f"one-{n}", "near-duplicate", duplicate_of=f"two-{n}") for n in (1, 2)],
        "two": [*(records.verdict(f"two-{n}") for n in (1, 2)), records.verdict("two-3", duplicate_of="two-1")],
    }
    both = records.reviewed("two-1", EV="wood", MD="run")
    assert carried_over(reviewed, verdicts) == {"one": reviewed["one"], "two": [both, reviewed["two"][1]]}
    removed = {"one": verdicts["one"]}
    assert carried_over(reviewed, removed) == {"one": reviewed["one"]}, "a film may be removed, or cut again"


def test_reviewed_values_are_published_and_the_machine_keeps_its_words(built: Built) -> None:
    before, machine = contents(built.data.root), built.caption(0)
    ponyo = built.data.record.cast[0]
    reviewed = {
        "S": "fox", "MD": "jump over a brook", "EV": None, "MA": machine["MA"], "SC": 1, "ET": 0, "ST": 1,
        "characters": [ponyo], "actor": ponyo, "others": 2, "sentence": "A fox jumps.",
    }  # fmt: skip
    for field, value in reviewed.items():
        built.review(0, field, value)
    assert not make_plan(built.request, Workspace(built.request.out)).unfinished
    assert not is_published(built.data, built.request.config)
    built.build()
    source = {"source": "rules", "flags": machine["flags"], "reviewed": sorted(CAPTION_FIELDS)}
    assert built.caption(0) == {**reviewed, **source}
    line = built.samples()[built.clips[0].clip_id][1]
    assert line == f"Character: {ponyo}; Motion: {machine['MA']} jump over a brook."
    assert built.caption(1)["reviewed"] == []
    changed = differences(before, contents(built.data.root))
    film = f"films/{built.data.record.films[0].film_id}"
    published = {"README.md", "report.html", "published.json", "review.jsonl", "shards/index.json"}
    assert {name for name in changed if not name.endswith(".tar")} == {*published, f"{film}/reviewed.parquet"}


def test_without_reviews_everything_is_as_before_them(built: Built) -> None:
    before = contents(built.data.root)
    assert "## Reviews" not in (built.data.root / "README.md").read_text(encoding="utf-8")
    built.reviews.touch()
    built.build()
    built.review(0, "MD", "jump")
    built.review(1, "keep", False)
    built.build()
    assert differences(before, contents(built.data.root))
    built.review(0, "MD", minute=1)
    built.review(1, "keep", minute=1)
    built.build()
    left = differences(before, contents(built.data.root))
    assert left == ["published.json", "review.jsonl"]
    built.reviews.unlink()
    built.build()
    assert differences(before, contents(built.data.root)) == []


def test_a_line_publishes_again_once_and_a_foreign_one_only_the_pages(built: Built) -> None:
    built.review(0, "MD", "jump")
    built.build()
    shards = {path: path.stat().st_mtime_ns for path in built.data.root.rglob("*.tar")}
    notes = json.loads((built.data.root / "published.json").read_bytes())
    append_decisions(built.reviews, [records.decision("MD", "run")])  # about another film
    assert load_reviews(built.data, built.reviews).foreign == (2,)
    assert not is_published(built.data, built.request.config)
    built.build()
    renewed = json.loads((built.data.root / "published.json").read_bytes())
    assert renewed["shards"] == notes["shards"]
    assert renewed["report"] != notes["report"]
    assert {path: path.stat().st_mtime_ns for path in built.data.root.rglob("*.tar")} == shards


def test_published_data_verify_after_further_reviews_and_without_the_file(built: Built) -> None:
    built.review(0, "MD", "jump")
    built.build()
    built.review(0, "MD", "crawl", minute=1)
    assert verify(built.data) == []
    table = built.data.folders()[0].table_path("reviewed")
    whole = table.read_bytes()
    table.unlink()
    assert any("caption.MD" in str(fault) for fault in verify(built.data))
    table.write_bytes(b"damaged")
    assert not is_published(built.data, built.request.config)
    built.build()
    assert table.read_bytes() != whole
    built.reviews.unlink()
    assert verify(built.data) == []


def test_a_review_keeps_and_drops(original: Path, tmp_path: Path) -> None:
    bright = Built(Path(shutil.copytree(original, tmp_path / "copy")), selection={"min_light": 255.0})
    bright.build()
    assert not bright.samples(), "every clip is too dark for this setting"
    bright.review(0, "keep", True)
    bright.review(1, "keep", False)
    bright.build()
    assert list(bright.samples()) == [bright.clips[0].clip_id]
    kept, dropped, other = bright.data.folders()[0].read("verdicts", Verdict)[:3]
    assert (kept.keep, kept.reasons) == (True, ("dark",))
    assert (dropped.keep, dropped.reasons) == (False, ("dark", "review"))
    assert (other.keep, other.reasons) == (False, ("dark",))
    assert bright.caption(0)["source"] is None, "a clip that is dropped before captions has none"
    bright.review(0, "S", "fox")
    bright.build()
    caption = bright.caption(0)
    assert (caption["source"], caption["S"], caption["MD"], caption["reviewed"]) == (None, "fox", None, ["S"])
    report = (bright.data.root / "report.html").read_text(encoding="utf-8")
    assert "kept against dark" in report
    assert "dropped: review" not in report, "the first reason is that of the rules"


@pytest.mark.slow
def test_a_film_cut_anew_keeps_its_reviews(built: Built) -> None:
    for place in range(len(built.clips)):
        built.review(place, "S", "fox")
        built.review(place, "sentence", f"Clip {place} runs.")
    before = {clip.clip_id for clip in built.clips}
    built.request = built.with_settings(clips={**SMALL["clips"], "margin_frames": 4})  # 83 ms later
    built.build()
    assert not before & {clip.clip_id for clip in built.clips}
    captions = [built.caption(place) for place in range(len(built.clips))]
    assert [caption["sentence"] for caption in captions] == [f"Clip {place} runs." for place in range(len(captions))]
    assert all(caption["reviewed"] == ["S", "sentence"] for caption in captions)
    built.request = built.with_settings(clips={**SMALL["clips"], "margin_frames": 12})  # 417 ms later
    built.build()
    assert not any(sample["caption"]["reviewed"] for sample, _ in built.samples().values())
    reviews = load_reviews(built.data, built.reviews)
    assert not reviews.standings
    assert len(reviews.unmatched) == 2 * len(before)


def test_the_file_may_lie_elsewhere(built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built.reviews = tmp_path / "git" / "labels.jsonl"
    monkeypatch.chdir(tmp_path)
    built.request = built.with_settings(review={"file": "git/labels.jsonl"})
    plan = make_plan(built.request, Workspace(built.request.out))
    assert any("labels.jsonl: no such review file" in notice for notice in plan.notices)
    built.review(0, "S", "fox")
    built.build()
    assert built.caption(0)["S"] == "fox"
    monkeypatch.chdir("/")  # the next command may run anywhere
    stored = checked(built.data.record.config, "dataset.json")
    assert is_published(built.data, stored)


def test_names_outside_the_cast_are_not_applied(built: Built) -> None:
    known = list(built.data.record.cast)
    built.review(0, "characters", known[::-1])
    built.review(0, "characters", ["Nobody Known"], minute=1)
    built.review(0, "actor", "Nobody Known", minute=1)
    built.review(1, "actor", "old fox", minute=1)
    built.review(1, "characters", known[::-1])
    built.build()
    assert not built.caption(0)["reviewed"], "a decision that was superseded does not come back"
    assert built.caption(0)["actor"] is None
    assert built.caption(1)["actor"] == "old fox"
    assert built.caption(1)["characters"] == known, "in the order of the cast"
    assert load_reviews(built.data, built.reviews).outside_cast == (2, 3)
    built.review(0, "actor", known[0], minute=9)
    assert load_reviews(built.data, built.reviews).outside_cast == (2,), "replaced by its reviewer"
    built.review(0, "actor", "Somebody Else", minute=5)
    assert load_reviews(built.data, built.reviews).outside_cast == (2,), "older than the one before it in the file"


def test_a_film_added_with_its_own_cast_leaves_the_reviews_of_others(built: Built) -> None:
    names = built.data.record.cast
    built.review(0, "characters", list(names[:1]))
    built.build()
    make_cast(built.root / "own", "Kiki")
    second = {"films": (str(make_film(built.root / "second.mp4", frames=48)),), "cast": str(built.root / "own")}
    plan = make_plan(built.request.model_copy(update=second), Workspace(built.request.out))
    for stage in plan.publishing:
        stage.run(built.data, silent)
    assert built.data.record.cast == (*names, "Kiki")
    assert built.caption(0)["characters"] == list(names[:1])


def test_card_report_and_status_count_reviews_and_name_what_is_not_applied(built: Built) -> None:
    built.review(0, "MD", "jump")
    built.review(0, "MD", "crawl", reviewer="bob <b>", minute=1)
    built.review(1, "keep", True)
    built.review(2, "S", "fox", start_seconds=0.3, end_seconds=0.5)
    built.review(2, "actor", "Nobody Known")
    append_decisions(built.reviews, [records.decision("MD", "run")])
    for second in (900.0, 902.0):
        built.review(0, "S", "fox", start_seconds=second, end_seconds=second + 2)
    with built.reviews.open("ab") as file:
        file.write(b"<script>\n" + b"\xff\n" * 7 + b'{"torn')
    plan = make_plan(built.request, Workspace(built.request.out))
    assert any("line 9 is not a decision" in notice and "nor are 8 more" in notice for notice in plan.notices)
    built.build()
    config = built.request.config
    places = {
        "card": (built.data.root / "README.md").read_text(encoding="utf-8").replace("\\", ""),
        "report": (built.data.root / "report.html").read_text(encoding="utf-8"),
        "status": "\n".join(review_lines(built.data, config)),
    }
    for name, text in places.items():
        for fact in (
            f"1 conflict between reviewers: MD of {built.clips[0].clip_id} (anna, bob ",
            "1 decision about a span of a film that no clip shares: line 4",
            "2 decisions about parts of films after the last clip, which were not built",
            "1 decision about a character outside the cast: line 5",
            "1 decision about a film that is not in this dataset: line 6",
            "9 lines that cannot be read as a decision: line 9 (",
            "and 4 more",
        ):
            assert fact in text, (name, fact)
    status = places["status"].splitlines()[0]
    assert status == f"2 of {len(built.clips)} clips (keep 1, MD 1) by anna, bob <b>"
    assert "| MD | 1 |" in places["card"]
    assert "bob &lt;b&gt;" in places["report"]
    assert "MD crawl (machine: " in places["report"]


def test_an_actor_follows_the_reviewed_subject_and_characters() -> None:
    noun = Caption(clip_id="c", source="m", S="girl", characters=("Hana", "Søren"), actor="girl")
    named = noun.model_copy(update={"actor": "Hana"})

    def actor(caption: Caption, **values: Any) -> str | None:
        review = records.reviewed("c", **values)
        return with_reviews([caption], {"c": review})["c"].actor

    assert actor(noun, S="fox") == "fox"
    assert actor(noun, characters=("Hana",)) == "girl"
    assert actor(named, S="fox") == "Hana"
    assert actor(named, characters=("Søren",)) == "girl"
    assert actor(named, characters=("Søren",), S="fox") == "fox"
    assert actor(named, characters=("Søren",), actor="Hana") == "Hana"
    assert actor(noun.model_copy(update={"actor": None}), S="fox") is None


def test_a_caption_with_a_fault_is_completed_by_a_review() -> None:
    faulty = Caption(clip_id="c", source="m", MD="stale", fault="no JSON", flags=("doubt: x",))
    assert with_reviews([faulty], {"c": records.reviewed("c", keep=True)})["c"] == faulty
    made = with_reviews([faulty], {"c": records.reviewed("c", S="fox")})["c"]
    assert (made.fault, made.source, made.S, made.MD, made.flags) == (None, "m", "fox", None, ("doubt: x",))
    assert read_reviewed(Dataset(Path("/nowhere")).folder("film")) == {}
