"""Form of a deployment: accepts the addresses that the commands accept and refuses others before storing them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from flows.commands.dataset import checked_request
from flows.train_run import TrainRequest
from pipeline.core.config import CaptionSettings, checked
from pipeline.core.errors import UserError
from pipeline.plan.request import BuildRequest

PLACE = BuildRequest.model_json_schema()["properties"]["out"]["pattern"]
ENDPOINT = CaptionSettings.model_json_schema()["properties"]["endpoint"]["pattern"]


def is_taken(make: Callable[[], object]) -> bool:
    try:
        make()
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    ("place", "taken"),
    [
        ("/films/a film? at 12:30 @home.mkv", True),
        ("s3://bucket/海の話 (1989).mkv", True),
        ("s3://bucket/at 12:30/data", True),
        ("hf://datasets/house/films@main/a.mkv", True),
        ("https://host:8080/film.mkv", True),
        ("s3://key:hunter2@bucket/data", False),
        ("s3://key:hun/ter2@bucket/data", False),
        ("s3://key:hun\nter2@bucket/data", False),
        ("https://hunter2@host/film.mkv", False),
        ("HTTPS://\nhunter2@host/film.mkv", False),
        ("https://host/film.mkv?token=hunter2", False),
        ("simplecache::s3://key:hunter2@bucket/data", False),
    ],
)
def test_places(place: str, taken: bool) -> None:
    assert bool(re.search(PLACE, place)) is taken
    assert is_taken(lambda: BuildRequest(films=(place,), out="/data")) is taken


def test_paths_that_a_dataset_cannot_hold_are_refused_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / os.fsdecode(b"cast\xff")
    odd.mkdir()
    for field in ("out", "cast"):
        with pytest.raises(UserError, match=f"{field}: {tmp_path}/cast\ufffd is not valid UTF-8"):
            checked_request(**{"films": ("film.mkv",), "out": "data", field: odd})
    monkeypatch.chdir(odd)
    request = {"films": ("/film.mkv",), "out": "/data"}
    assert is_taken(lambda: BuildRequest(**request, cast="/cast"))
    assert not is_taken(lambda: BuildRequest(**request, cast="cast"))
    with pytest.raises(UserError, match=r"\[review\] file: .* is not valid UTF-8"):
        checked_request(**request, config=checked({"review": {"file": "review.jsonl"}}, "small.toml"))


@pytest.mark.parametrize("place", ["s3://key:hunter2@bucket/data", "https://host/data?token=hunter2"])
def test_training_data(place: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TrainRequest(data=("data", place), out=Path("run"))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("key", ["sk-proj-hunter2", "hf_hunter2", "HUNTER 2"])
def test_a_key_in_place_of_its_variable_name_is_refused(key: str) -> None:
    with pytest.raises(UserError, match=r"captions\.api_key_env") as caught:
        checked({"captions": {"api_key_env": key}}, "small.toml")
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "taken"),
    [
        ("http://127.0.0.1:23333/v1", True),
        ("HTTPS://host/v1", True),
        ("http://key:hunter2@host/v1", False),
        ("https://host/v1?key=hunter2", False),
        ("https://host/v1#hunter2", False),
        ("ftp://host/v1", False),
    ],
)
def test_endpoints(address: str, taken: bool) -> None:
    assert bool(re.search(ENDPOINT, address)) is taken
    assert is_taken(lambda: CaptionSettings(endpoint=address)) is taken
