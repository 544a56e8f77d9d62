"""Samples: their fields, clips that cannot become samples, and the split of each."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from pydantic import ValidationError

from pipeline.core.records import Caption, Clip, Motion, RecordError, Verdict
from pipeline.core.store import Dataset
from pipeline.publish.samples import Sample
from pipeline.publish.shards import read_index, write_shards
from tests.support.datasets.made_dataset import EDGES, MODEL, make_dataset
from tests.support.datasets.published_clips import SMALL, Row, change, samples_of, tars

# --- fields


def test_a_sample_has_exactly_the_fields_of_the_contract(dataset: Dataset) -> None:
    write_shards(dataset, SMALL)
    shard = read_index(dataset.root).shards[0]
    with tarfile.open(dataset.root / "shards" / shard.name) as tar:
        text = tar.extractfile(f"{shard.first_clip}.json").read().decode()
        line = tar.extractfile(f"{shard.first_clip}.txt").read().decode()
    clip = dataset.folders()[0].read("clips", Clip)[0]
    assert json.loads(text) == {
        "schema": 2,
        "clip_id": clip.clip_id,
        "film_id": clip.film_id,
        "scene": 0,
        "index": 0,
        "start_seconds": clip.start_seconds,
        "end_seconds": clip.end_seconds,
        "overlap_seconds": 0.0,
        "split": "train",
        "fps": "8",
        "frames": 16,
        "motion": {
            "scope_px": 0.5,
            "level": 1,
            "flow_model": "dis",
            "edges": list(EDGES),
            "camera_px": 0.125,
            "unique_frames": 1,
        },
        "caption": {
            "source": MODEL,
            "S": "fox",
            "MD": "rides a broom over the café",
            "EV": "夏の海",
            "MA": "barely",
            "SC": 0,
            "ET": 1,
            "ST": 1,
            "characters": [],
            "actor": None,
            "others": None,
            "sentence": None,
            "flags": [],
            "reviewed": [],
        },
        "dialogue": None,
        "sound": None,
    }
    assert "夏の海" in text
    assert line == "Character: fox; Motion: barely rides a broom over the café; Background: 夏の海."


def test_fields_not_measured_by_rules_are_null_and_left_out_of_the_line(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, captioner="rules", films=1)
    write_shards(dataset, SMALL)
    caption = samples_of(dataset)[0].caption
    assert (caption.source, caption.S, caption.SC, caption.characters) == ("rules", None, None, None)
    with tarfile.open(dataset.root / "shards" / read_index(dataset.root).shards[0].name) as tar:
        name = next(name for name in tar.getnames() if name.endswith(".txt"))
        assert tar.extractfile(name).read() == b"Motion: barely stays still."


def test_a_quarantined_or_missing_caption_leaves_every_tag_null(dataset: Dataset) -> None:
    quarantined = change(dataset, "captions", Caption, fault="the reply has no <S>")
    folder = dataset.folders()[1]
    missing, *captions = folder.read("captions", Caption)
    folder.write("captions", captions)
    write_shards(dataset, SMALL)
    found = {sample.clip_id: sample.caption for sample in samples_of(dataset)}
    assert found[quarantined].model_dump() == {
        **dict.fromkeys(("S", "MD", "EV", "MA", "SC", "ET", "ST", "characters", "actor", "others", "sentence")),
        "source": MODEL,
        "flags": (),
        "reviewed": (),
    }
    assert found[missing.clip_id].source is None


# --- refusals


@pytest.mark.parametrize(
    ("table", "record", "fields", "reason"),
    [
        ("motion", Motion, {"flow_model": "memflow"}, "by memflow, the data set's by dis"),
        ("motion", Motion, {"clip_id": "other"}, "its motion is not measured"),
        ("captions", Caption, {"source": "rules"}, f"by rules, the data set's by {MODEL}"),
        ("verdicts", Verdict, {"level": None}, "its motion is not measured"),
        ("verdicts", Verdict, {"level": 6}, "motion.level: Input should be less than or equal to 5"),
        ("clips", Clip, {"clip_id": "other"}, "no such clip was cut"),
    ],
)
def test_a_clip_that_cannot_be_published_is_named(
    dataset: Dataset, table: str, record: type[Row], fields: dict[str, object], reason: str
) -> None:
    first = dataset.folders()[0].read("clips", Clip)[0].clip_id
    change(dataset, table, record, **fields)
    with pytest.raises(RecordError, match=reason) as raised:
        write_shards(dataset, SMALL)
    assert raised.value.record_id == first
    assert tars(dataset) == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"schema": 2', '"schema": 3'),
        ('"scene": 0', '"scene": "0"'),
        ('"scope_px": 0.5', '"scope_px": NaN'),
        ('"level": 1', '"level": true'),
        ('"fps": "8"', '"fps": "eight"'),
        ('"frames": 16', '"frames": 16, "mood": "sad"'),
        ('"split": "train"', '"split": "test"'),
    ],
)
def test_the_sample_record_converts_nothing(dataset: Dataset, old: str, new: str) -> None:
    write_shards(dataset, SMALL)
    text = json.dumps(samples_of(dataset)[0].model_dump(mode="json"))
    assert Sample.model_validate_json(text)
    assert old in text
    with pytest.raises(ValidationError):
        Sample.model_validate_json(text.replace(old, new))
