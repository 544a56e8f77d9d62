"""Plans of builds: folders of other things refused, settings of before not taken over, and a cast not used."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.core.config import CaptionSettings, CardSettings, Config
from pipeline.core.errors import UserError
from pipeline.plan.build_plan import make_plan
from pipeline.plan.request import BuildRequest, Until
from pipeline.plan.workspace import Workspace
from tests.support.media.films import make_film
from tests.support.media.painted_clips import make_cast


@pytest.mark.parametrize("name", ["README.md", "report.html", "shards"])
def test_a_folder_whose_files_a_build_would_replace_is_refused(tmp_path: Path, name: str) -> None:
    out = tmp_path / "project"
    (out / name).mkdir(parents=True) if name == "shards" else (out.mkdir(), (out / name).write_text("mine"))
    (out / "build.toml").touch()
    with pytest.raises(UserError, match=f"no data set, and a build would replace {name} there"):
        make_plan(BuildRequest(films=(), out=str(out)), Workspace(str(out)))
    assert sorted(path.name for path in out.iterdir()) == sorted(["build.toml", name])


def test_settings_that_a_build_forgets_are_named(tmp_path: Path) -> None:
    out = str(tmp_path / "data")
    film = make_film(tmp_path / "film.mkv", frames=8, size=(64, 48), barcode=False)

    def notices(config: Config) -> tuple[str, ...]:
        return make_plan(BuildRequest(films=(str(film),), out=out, config=config), Workspace(out)).notices

    licensed = Config(card=CardSettings(licence="CC BY 3.0"))
    assert notices(licensed) == notices(licensed) == ()
    [notice] = notices(Config())
    assert notice.startswith(
        "settings unlike those of the build before: card.licence; give its options and --config again"
    )


def test_a_cast_that_captions_by_rules_do_not_use_is_named(tmp_path: Path) -> None:
    make_cast(tmp_path / "cast", "Ponyo", "Sosuke")

    def notices(name: str, **changes: object) -> tuple[str, ...]:
        out = str(tmp_path / name)
        request = BuildRequest(films=(), out=out, cast=str(tmp_path / "cast"))
        return make_plan(request.model_copy(update=changes), Workspace(out)).notices

    [notice] = notices("rules")
    assert notice.startswith("the cast is listed for reviews only: captions by rules name no characters")
    assert "`--captioner server`" in notice
    assert notices("server", config=Config(captions=CaptionSettings(captioner="server"))) == ()
    assert notices("measured", until=Until.motion) == (), "the captions of a later build may be others"
