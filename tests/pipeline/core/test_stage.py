"""Stage runner: reasons for reruns, files and records of a run, and clips that fail alone."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pipeline.core.progress import Progress, silent
from pipeline.core.records import Crop, Failure, RecordError, Verdict
from pipeline.core.stage import Outcome, Stage, attempt_each, is_current, make, perform, why_stale
from pipeline.core.store import FilmFolder, StoreError
from tests.support import records

FILM = records.film()


@dataclass(frozen=True)
class First(Stage):
    """Stage that writes a table and a file, and counts its runs."""

    name: ClassVar[str] = "first"
    version: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = ()

    left: int = 0
    edges: tuple[float, ...] = (1.5, 2.5)
    runs: list[str] = field(default_factory=list)

    def ingredients(self) -> dict[str, Any]:
        return {"settings": {"left": self.left, "edges": self.edges}}

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        progress(1, 1)
        self.runs.append(folder.film_id)
        (folder.path / "clips").mkdir(exist_ok=True)
        folder.clip_path("one").write_bytes(b"a clip")
        crop = records.crop(folder.film_id, left=self.left)
        failure = Failure(record_id="two", reason="broken")
        return Outcome(tables={"crop": [crop], "damage": []}, files=("clips/one.mp4",), failures=(failure,))


class FirstRewritten(First):
    version: ClassVar[int] = 2


@dataclass(frozen=True)
class Second(Stage):
    """Stage that reads the first one's table."""

    name: ClassVar[str] = "second"
    version: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = ("first",)

    def ingredients(self) -> dict[str, Any]:
        return {}

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        progress(1, 1)
        (crop,) = folder.read("crop", Crop)
        verdict = records.verdict(str(crop.left))
        return Outcome(tables={"verdicts": [verdict]})


class Finder(First):
    """Stage that finds something out about the film."""

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        return replace(super().run(folder, progress), film={"fields": ("progressive",)})


class Interrupted(First):
    """Stage that writes its clip and then fails, as in a power cut."""

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        super().run(folder, progress)
        raise KeyboardInterrupt


@pytest.fixture
def folder(tmp_path: Path) -> FilmFolder:
    folder = FilmFolder(tmp_path / FILM.film_id)
    folder.save_film(FILM)
    return folder


def test_what_a_stage_finds_out_about_a_film_goes_into_its_record(folder: FilmFolder) -> None:
    @contextmanager
    def fetched(folder: FilmFolder) -> Iterator[FilmFolder]:
        yield FilmFolder(folder.path, source=Path("a local copy.mp4"))

    make(Finder(), folder, silent, fetched)
    assert folder.film == FILM.model_copy(update={"fields": ("progressive",)})
    assert is_current(Finder(), folder)


def test_a_changed_setting_runs_it_again_and_is_named(folder: FilmFolder) -> None:
    perform(First(), folder)
    changed = First(left=2)
    assert why_stale(changed, folder) == "changed: settings.left (0 to 2)"
    assert perform(changed, folder)
    assert folder.read("crop", Crop)[0].left == 2


def test_a_new_version_and_another_content_run_it_again(folder: FilmFolder) -> None:
    perform(First(), folder)
    assert why_stale(FirstRewritten(), folder) == 'changed: stage ("first 1" to "first 2")'
    folder.save_film(FILM.model_copy(update={"sha256": "f" * 64}))
    assert why_stale(First(), folder) == "changed: content"


def test_damage_of_the_same_size_is_noticed_and_a_touched_file_is_not(
    folder: FilmFolder,
) -> None:
    perform(First(), folder)
    clip = folder.path / "clips" / "one.mp4"
    os.utime(clip, ns=(1, 1))
    assert is_current(First(), folder)
    clip.write_bytes(bytes(reversed(clip.read_bytes())))
    assert why_stale(First(), folder) == "missing or damaged: clips/one.mp4 (1 of 3 files)"
    assert perform(First(), folder)
    assert is_current(First(), folder)


def test_a_moved_film_does_not_run_it_again(folder: FilmFolder) -> None:
    perform(First(), folder)
    folder.save_film(FILM.model_copy(update={"source": "/elsewhere.mp4", "name": "elsewhere.mp4"}))
    assert is_current(First(), folder)


@pytest.mark.parametrize("name", ["clips/one.mp4", "crop.parquet", "damage.parquet"])
def test_a_missing_or_truncated_file_runs_it_again(folder: FilmFolder, name: str) -> None:
    stage = First()
    perform(stage, folder)
    whole = (folder.path / name).read_bytes()
    (folder.path / name).unlink()
    assert why_stale(stage, folder) == f"missing or damaged: {name} (1 of 3 files)"
    assert perform(stage, folder)
    (folder.path / name).write_bytes(whole[:-1])
    assert perform(stage, folder)
    assert (folder.path / name).read_bytes() == whole
    assert not perform(stage, folder)


def test_a_change_upstream_runs_dependent_stages(folder: FilmFolder) -> None:
    perform(First(), folder)
    assert perform(Second(), folder)
    assert not perform(Second(), folder)
    perform(First(left=4), folder)
    assert why_stale(Second(), folder) == "changed: upstream.first"
    assert perform(Second(), folder)
    assert folder.read("verdicts", Verdict)[0].clip_id == "4"


def test_the_same_result_made_anew_upstream_changes_nothing_downstream(folder: FilmFolder) -> None:
    perform(First(), folder)
    perform(Second(), folder)
    folder.clip_path("one").unlink()
    assert perform(First(), folder)
    assert is_current(Second(), folder)


def test_a_stage_does_not_run_before_its_inputs_exist(folder: FilmFolder) -> None:
    folder.write("crop", [records.crop()])  # an unfinished run's
    with pytest.raises(StoreError, match="second needs first, which has not finished"):
        perform(Second(), folder)


def test_an_interrupted_run_is_not_taken_for_the_old_result(folder: FilmFolder) -> None:
    perform(First(), folder)
    with pytest.raises(KeyboardInterrupt):
        perform(Interrupted(left=2), folder)
    # the old settings again: sizes and fingerprint would match, the content need not
    assert why_stale(First(), folder) == "not made yet"


# --- attempt_each --------------------------------------------------------------------------------------------------


def verdict(number: int) -> Verdict:
    if number % 5 == 3:
        raise RecordError(str(number), "no luck")
    time.sleep(0.002 * (number % 3))  # later items finish earlier
    return records.verdict(str(number))


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_results_keep_their_order_and_failures_are_collected(threads: int) -> None:
    steps: list[tuple[float, float]] = []
    done, failures = attempt_each(
        range(20), verdict, threads=threads, failed_limit=0.2, progress=lambda *step: steps.append(step)
    )
    assert [int(one.clip_id) for one in done] == [number for number in range(20) if number % 5 != 3]
    assert [failure.record_id for failure in failures] == ["3", "8", "13", "18"]
    assert {failure.reason for failure in failures} == {"no luck"}
    assert steps == [(count, 20) for count in range(1, 21)]


def test_too_many_failures_fail_the_stage() -> None:
    with pytest.raises(RecordError, match="4 of 20 failed; first: no luck"):
        attempt_each(range(20), verdict, threads=2, failed_limit=0.19, progress=silent)


def test_an_exception_in_the_progress_cancels_pending_items() -> None:
    begun: list[int] = []

    def work(number: int) -> Verdict:
        begun.append(number)
        time.sleep(0.005)
        return verdict(0)

    def stop(done: float, total: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attempt_each(range(200), work, threads=2, failed_limit=1.0, progress=stop)
    assert len(begun) < 100


@pytest.mark.skipif(os.cpu_count() == 1, reason="needs two cores")
def test_zero_threads_mean_all_cores() -> None:
    both = threading.Barrier(2, timeout=5)

    def work(number: int) -> Verdict:
        both.wait()  # passes only if two run at once
        return verdict(0)

    done, _ = attempt_each(range(2), work, threads=0, failed_limit=0, progress=silent)
    assert len(done) == 2


def test_a_film_that_changed_while_it_was_read_leaves_no_record(tmp_path: Path) -> None:
    """The planned film may come back: what was made of the other one must not count as made of it."""

    @contextmanager
    def changes(folder: FilmFolder) -> Iterator[FilmFolder]:
        yield folder
        raise RecordError(folder.film_id, "has changed")

    folder = FilmFolder(tmp_path / FILM.film_id)
    folder.save_film(FILM)
    with pytest.raises(RecordError, match="has changed"):
        make(First(), folder, silent, changes)
    assert not folder.table_path("crop").exists()
    assert why_stale(First(), folder) == "not made yet"
