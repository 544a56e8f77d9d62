"""Command `captions`: a trial on a few clips, its page and its figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from typer.testing import CliRunner

from flows.cli import app
from pipeline.core.atomic import held
from pipeline.core.config import checked
from pipeline.core.measurements import Looks
from pipeline.core.records import Verdict
from pipeline.core.store import Dataset
from pipeline.plan.film_stages import captions_of
from pipeline.plan.request import BuildRequest
from tests.support.builds.real_builds import contents, differences, numbered_film, write_config
from tests.support.builds.rebuilt_films import animegamer
from tests.support.datasets.built_dataset import SMALL, build_here, copy_of_built
from tests.support.media.painted_clips import make_cast
from tests.support.servers.caption_server import Answer, CaptionServer, Request, good_answer, good_what

HOSTILE = "<script>document.title='owned'</script>"


def answer(request: Request) -> Answer:
    if request.kind == "what" and request.number == 5:
        return Answer(good_what(5).replace("</S>", HOSTILE + "</S>"))
    return good_answer(request)


def invoked(*arguments: object, code: int = 0) -> str:
    """Run a command in this process and return what it said."""
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.nightly
@pytest.mark.browser
def test_a_trial_shows_replies_and_cost_and_is_not_paid_twice(tmp_path: Path, chromium: Browser) -> None:
    films, out = [numbered_film(tmp_path / f"{first}.mp4", first) for first in (0, 4)], tmp_path / "data"
    make_cast(tmp_path / "cast", "Ponyo", "Sosuke")
    with CaptionServer(answer) as server:
        captions = {"endpoint": server.address, "model": "test-model", "repairs": 0, "failed_limit": 1.0}
        config = write_config(tmp_path / "config.toml", captions=captions)
        build = ["build", *films, "--out", out, "--cast", tmp_path / "cast", "--config", config]
        assert animegamer(*build).returncode == 0
        assert server.requests == []

        tried = animegamer("captions", out, "--try", 4, "--gpus", 2, "--price-per-million-tokens", 0.5)
        assert tried.returncode == 0, tried.stderr
        numbers = server.asked("what")
        assert len(numbers) == 4
        assert min(numbers) < 4 <= max(numbers), "both films"
        said = dict(re.findall(r"^(\w+(?: \w+)?)\s{2,}(.*)$", tried.stdout, re.M))
        assert said["tried"] == "4 of 8 clips, 4 of them asked about now"
        assert said["usable"] == "75%"
        assert said["tokens"] == "2,020 a clip"
        assert re.fullmatch(
            r"4: at most \S+ hours, \S+ GPU hours; 0.00808 million tokens; 0.00 at 0.5 a million", said["clips left"]
        )

        again = animegamer("captions", out, "--try", 4)
        assert "1 of them asked about now" in again.stdout  # the one without a usable reply
        assert "cost unknown" not in again.stdout
        server.requests.clear()
        assert animegamer(*build, "--captioner", "server").returncode in (0, 2)
        assert sorted(server.asked("what")) == sorted(set(range(8)) - set(numbers))

    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.goto((out / "captions-try.html").as_uri())
    assert page.title() == "Trial of captions · data"
    assert page.locator("article").count() == 4
    assert page.locator(".frames img").count() == 4 * 8
    assert page.locator("article.trouble").count() == 1
    assert HOSTILE in page.locator("article.trouble").inner_text()
    assert page.evaluate("[...document.images].every(image => image.naturalWidth > 0)")
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    page.close()


def test_a_trial_keeps_the_settings_of_the_last_build_and_all_that_is_published(tmp_path: Path) -> None:
    film, data = copy_of_built(tmp_path)
    (folder,) = Dataset(data).folders()
    lights = [row.light for row in folder.read("looks", Looks)]
    config = checked({**SMALL, "selection": {"min_light": sum(lights) / len(lights)}}, "test")
    build_here(BuildRequest(films=(film,), out=data, config=config))
    assert sorted(row.keep for row in folder.read("screened", Verdict)) == [False, True]
    before = contents(data)
    (folder.path / "replies").mkdir(exist_ok=True)
    killed = [path / ".a.json.animegamer-tmp-ab12_xyz.json" for path in (data, folder.path / "replies")]
    for path in (*killed, live := folder.path / ".a.json.animegamer-tmp-ab12_xyz.json"):
        path.touch()
    with CaptionServer(good_answer, read=lambda _: 0) as server:
        settings = write_config(tmp_path / "captions.toml", captions={"endpoint": server.address, "model": "m"})
        trial = ("captions", data, "--try", 2, "--config", settings)
        with held(folder.path, "a worker"):
            assert "tried        1 of 1 clips, 1 of them asked about now" in invoked(*trial)
        assert live.exists(), "a worker writes it"
        invoked(*trial)
    assert not any(path.exists() for path in (*killed, live))
    for name in (added := differences(before, contents(data))):
        assert name == "captions-try.html" or "/replies/" in name
    assert len(added) == 2


def test_a_trial_under_other_settings_screens_in_memory(tmp_path: Path) -> None:
    _, data = copy_of_built(tmp_path)
    before = contents(data)
    config = checked({**SMALL, "selection": {"min_light": 255}}, "test")
    _, [(_, verdicts)] = captions_of(Dataset(data), BuildRequest(films=(), out=data, config=config))
    assert [verdict.reasons for verdict in verdicts] == [("dark",)] * 2
    assert contents(data) == before


def test_a_dataset_without_clips_names_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "dataset.json").write_text("{}")
    assert "no clips to ask about: first build the dataset" in invoked("captions", tmp_path, code=1)
