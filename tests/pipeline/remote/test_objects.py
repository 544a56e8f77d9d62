"""Addresses, and stores that are missing, broken, unreachable or hostile: errors of one line without a secret.

Against an S3-compatible server on loopback. Pushed and pulled datasets are tested in `test_mirror.py`,
films and casts in `test_film_cache.py`.
"""

from __future__ import annotations

import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from s3fs import S3FileSystem

import pipeline.remote.objects
from pipeline.remote.film_cache import fetch_film, fetch_folder
from pipeline.remote.mirror import Mirror
from pipeline.remote.objects import RemoteError, checked_remote, is_address
from tests.support.datasets.mirrored_files import FILM, SMALL_SET, files_in, pulled, pushed, write
from tests.support.servers.object_store import SECRET, ObjectStore


@pytest.fixture
def other_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Patch for the environment of the store; s3fs reads it once for all users of the same store."""
    S3FileSystem.clear_instance_cache()
    yield monkeypatch
    S3FileSystem.clear_instance_cache()


# --- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["s3://bucket/data", "gs://b", "file:///data", "memory://x", "https://host/film.mkv"])
def test_addresses_are_recognised(text: str) -> None:
    assert is_address(text)
    assert checked_remote(text + "/") == text


@pytest.mark.parametrize(
    "text", ["data", "/data/s3", "C:\\films\\a.mkv", "c://films", "s3:/bucket", "a b://c", "./a://b"]
)
def test_a_path_is_not_an_address(text: str) -> None:
    assert not is_address(text)


@pytest.mark.parametrize(
    "address",
    [
        "s3://key:hunter2@bucket/data",
        "s3://key:hun/ter2@bucket/data",
        "https://hunter2@host/film.mkv",
        "https://host/film.mkv?token=hunter2",
        "S3://bucket/data?hunter2",
    ],
)
def test_an_address_with_a_secret_is_refused_without_repeating_it(address: str, tmp_path: Path) -> None:
    for use in (checked_remote, lambda text: Mirror(text, tmp_path), lambda text: fetch_film(text, tmp_path)):
        with pytest.raises(RemoteError, match="environment") as refusal:
            use(address)
        assert not re.search("hun|ter2|key|token", str(refusal.value))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["s3://", "s3:///", "s3://bucket/a\nb", "bucket/data"])
def test_malformed_addresses_are_refused(address: str) -> None:
    with pytest.raises(RemoteError, match="s3://bucket/data"):
        checked_remote(address)


# --- any store, any size ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_other_stores_are_reached_by_the_same_code(scheme: str, tmp_path: Path) -> None:
    address = f"{scheme}://{tmp_path}/store/data"
    here = Mirror(address, write(tmp_path / "here", SMALL_SET))
    here.push()
    (here.local / "README.md").unlink()
    here.push()
    there = Mirror(address, tmp_path / "there")
    there.pull()
    there.pull("dataset.json")
    assert files_in(there.local) == files_in(here.local)
    assert fetch_film(f"{address}/{FILM}/film.json", tmp_path / "cache").read_bytes() == b"{}"
    assert fetch_folder(f"{address}/{FILM}", tmp_path / "cache").is_dir()


def test_large_files_are_sent_one_after_another(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.remote.objects, "_LARGE_BYTES", 5)
    pushed(store, tmp_path / "here")
    assert files_in(pulled(store, tmp_path / "there").local) == SMALL_SET


# --- hostile and broken stores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/abs", "a//b", "./x", "a/.", "..", "a\nb", "films/../../x"])
def test_names_that_leave_the_folder_are_refused_before_anything_is_written(
    store: ObjectStore, tmp_path: Path, key: str
) -> None:
    store.put("data/README.md", b"a card")
    store.put(f"data/{key}", b"hostile")
    with pytest.raises(RemoteError, match=r"s3://bucket/data holds an object named .*delete it there") as refusal:
        Mirror(store.address("data"), tmp_path / "outer" / "here").pull()
    assert repr(key) in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_an_object_is_not_a_folder_and_a_folder_is_not_a_film(store: ObjectStore, tmp_path: Path) -> None:
    pushed(store, tmp_path / "here")
    with pytest.raises(RemoteError, match="is an object, not a folder"):
        Mirror(store.address("data/README.md"), tmp_path / "there").pull()
    with pytest.raises(RemoteError, match="is a folder; name a file"):
        fetch_film(store.address("data"), tmp_path / "cache")


@pytest.mark.parametrize(
    "use",
    [
        lambda address, folder: Mirror(address, folder).pull(),
        lambda address, folder: Mirror(address, write(folder, SMALL_SET)).push(),
        lambda address, folder: fetch_film(f"{address}/film.mkv", folder),
        fetch_folder,
    ],
)
def test_missing_objects_are_named_with_their_address(
    store: ObjectStore, tmp_path: Path, use: Callable[[str, Path], object]
) -> None:
    with pytest.raises(RemoteError, match=r"s3://elsewhere/data.*check the spelling"):
        use("s3://elsewhere/data", tmp_path)


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "http://user:hun/ter2@127.0.0.1:1"])
def test_an_unreachable_server_is_reported_soon_and_without_secrets(
    store: ObjectStore, tmp_path: Path, other_settings: pytest.MonkeyPatch, endpoint: str
) -> None:
    other_settings.setenv("AWS_ENDPOINT_URL", endpoint)
    other_settings.setenv("AWS_MAX_ATTEMPTS", "2")
    started = time.monotonic()
    with pytest.raises(RemoteError, match=r"s3://bucket/data: .*AWS_ENDPOINT_URL") as error:
        Mirror(store.address("data"), tmp_path).pull()
    assert time.monotonic() - started < 15
    message = "".join(traceback.format_exception(error.value))
    assert "ter2" not in message
    assert SECRET not in message


def test_missing_credentials_are_reported(
    store: ObjectStore, tmp_path: Path, other_settings: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        other_settings.delenv(name)
    other_settings.setenv("HOME", str(tmp_path))
    with pytest.raises(RemoteError, match=r"no permission .*credentials"):
        Mirror(store.address("data"), tmp_path).pull()


@pytest.mark.parametrize(
    ("address", "missing", "remedy"),
    [
        ("s3://bucket/data", "fsspec.config", "make install-cloud"),
        ("gs://bucket/data", "gcsfs", "install gcsfs"),
        ("nowhere://bucket/data", "gcsfs", "Protocol not known: nowhere"),
    ],
)
def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, missing: str, remedy: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(RemoteError, match=f"{address}: .*{remedy}"):
        Mirror(address, tmp_path)
