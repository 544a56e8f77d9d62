"""Vocabulary: values that mean the same are published as one, by a file that the builder edits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.core.config import Config
from pipeline.core.errors import UserError
from pipeline.core.progress import silent
from pipeline.core.records import Caption
from pipeline.core.store import Dataset
from pipeline.pages.report import write_report
from pipeline.plan.publish import WritePages, WriteShards
from pipeline.publish.samples import kept_clips
from pipeline.publish.shards import write_shards
from pipeline.publish.verify import verify
from pipeline.publish.vocabulary import Vocabulary, as_toml, load_vocabulary, suggested
from tests.support.datasets.made_dataset import MODEL, make_dataset


def captions_with(*motions: str) -> list[Caption]:
    return [Caption(clip_id=str(number), source=MODEL, MD=motion) for number, motion in enumerate(motions)]


def published(dataset: Dataset, config: Config) -> list[tuple[str | None, str | None]]:
    samples = [
        one.sample.caption
        for folder in dataset.folders()
        for one in kept_clips(folder, dataset.record, config.shards, load_vocabulary(dataset.root))
    ]
    return [(caption.MD, caption.EV) for caption in samples]


def test_values_of_a_group_are_published_as_one(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, captioner=MODEL)
    config = Config.model_validate(dataset.record.config)
    before, tables = published(dataset, config), [folder.read("captions", Caption) for folder in dataset.folders()]
    places = sorted({place for _, place in before if place})
    assert WriteShards(config).run(dataset, silent)
    assert not WriteShards(config).run(dataset, silent)

    (dataset.root / "vocabulary.toml").write_text(f'[EV]\nsomewhere = ["{places[0]}"]\n')
    assert WriteShards(config).run(dataset, silent)
    assert WritePages(config).run(dataset, silent)
    after = published(dataset, config)
    assert after == [(motion, "somewhere" if place == places[0] else place) for motion, place in before]
    assert verify(dataset) == []
    assert [folder.read("captions", Caption) for folder in dataset.folders()] == tables
    assert "somewhere" in (dataset.root / "report.html").read_text(encoding="utf-8")

    (dataset.root / "vocabulary.toml").unlink()
    assert WriteShards(config).run(dataset, silent)
    assert published(dataset, config) == before


def test_an_actor_in_other_letters_is_the_character() -> None:
    caption = Caption(clip_id="clip", source=MODEL, S="dragon", characters=("Léa", "Dragon"), actor="dragon")
    assert Vocabulary().applied(caption) == caption.model_copy(update={"actor": "Dragon"})
    assert Vocabulary().applied(unlike := caption.model_copy(update={"actor": "drake"})) == unlike


@pytest.mark.parametrize(
    ("motions", "group"),
    [
        (["run up the hill", "run up hill", "run up the hill"], {"run up the hill": ["run up hill"]}),
        (["smile", "smile", "smiles"], {"smile": ["smiles"]}),
        (["class room", "classroom", "classroom"], {"classroom": ["class room"]}),
        (["look at the forest", "look at the forrest", "look at the forest"],
         {"look at the forest": ["look at the forrest"]}),
        (["run up the hill", "run down the hill"], {}),
        (["stand", "sit"], {}),
        (["open the door", "close the door"], {}),
        (["turn left", "turn right"], {}),
        (["bedroom", "bathroom"], {}),
        (["forest", "night forest"], {}),
        (["sea", "seat"], {}),
    ],
)  # fmt: skip
def test_like_spellings_are_suggested_and_opposites_are_not(motions: list[str], group: dict[str, list[str]]) -> None:
    assert suggested(captions_with(*motions)) == {"MD": group, "EV": {}}


@pytest.mark.timeout(20)
def test_suggestions_for_many_values_take_seconds() -> None:
    motions = [f"look at the {chr(97 + number % 26)}{number} and {number // 7}" for number in range(5_000)]
    assert len(suggested(captions_with(*motions))["MD"]) < 5_000


def test_a_suggestion_is_a_vocabulary(tmp_path: Path) -> None:
    groups = suggested(captions_with('shout "no"', 'shout "no"', 'shouts "no"'))
    (tmp_path / "vocabulary.toml").write_text(as_toml(groups))
    assert load_vocabulary(tmp_path) == Vocabulary({"MD": {'shouts "no"': 'shout "no"'}, "EV": {}})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[MD", "cannot be read as TOML"),
        ("[MD]\nrun = 1", "MD.run"),
        ("[S]\ngirl = ['woman']", "the tables are MD and EV"),
        ("[MD]\nrun = ['dash']\nhurry = ['dash']", "`dash` in two groups"),
        ("[MD]\nrun = ['dash']\ndash = ['hurry']", "`dash` in two groups"),
    ],
)
def test_a_broken_file_is_an_error_with_its_name(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "vocabulary.toml").write_text(text)
    with pytest.raises(UserError, match=r"vocabulary\.toml") as caught:
        load_vocabulary(tmp_path)
    assert fault in str(caught.value)


def test_rare_values_are_in_the_report(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, captioner=MODEL)
    write_shards(dataset, Config.model_validate(dataset.record.config).shards)
    folder = next(iter(dataset.folders()))
    rows = folder.read("captions", Caption)
    kept = kept_clips(folder, dataset.record, Config().shards, Vocabulary())[0].clip.clip_id
    folder.write("captions", [row.model_copy(update={"MD": "juggle"}) if row.clip_id == kept else row for row in rows])
    page = write_report(dataset).read_text(encoding="utf-8")
    assert "juggle (1)" in page[page.index('data-rare="MD"') :].split("</p>")[0]


def test_a_pipe_in_place_of_the_vocabulary_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "vocabulary.toml")
    with pytest.raises(UserError, match=r"vocabulary\.toml is not a file"):
        load_vocabulary(tmp_path)
