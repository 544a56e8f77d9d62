"""Film cache: films and casts fetched once until they change, from an S3-compatible server on loopback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.core.atomic import temporary_start
from pipeline.core.progress import silent
from pipeline.core.records import Film, RecordError
from pipeline.remote.film_cache import delete_local_film, fetch_film, fetch_folder, film_identity, local_film
from pipeline.remote.objects import RemoteError
from tests.support.datasets.mirrored_files import files_in
from tests.support.media.films import make_film, planned
from tests.support.servers.object_store import ObjectStore


def test_building_local_films_does_not_import_fsspec() -> None:
    program = "import sys, pipeline.remote.film_cache; assert not {'fsspec', 's3fs', 'botocore'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_film_is_fetched_once_until_it_changes(store: ObjectStore, tmp_path: Path) -> None:
    store.put("films/海の話 (1989).mkv", b"a film")
    address = store.address("films/海の話 (1989).mkv")
    before = film_identity(address)
    path = fetch_film(address, tmp_path)
    assert (path.name, path.read_bytes()) == ("海の話 (1989).mkv", b"a film")
    store.requests.clear()
    assert (fetch_film(address, tmp_path), film_identity(address)) == (path, before)
    assert {method for method, _ in store.requests} == {"HEAD"}
    path.write_bytes(b"cut")
    assert fetch_film(address, tmp_path).read_bytes() == b"a film"
    fetch_folder(store.address("films"), tmp_path)  # s3fs caches its listings
    store.put("films/海の話 (1989).mkv", b"A film")
    assert film_identity(address) != before
    assert fetch_film(address, tmp_path).read_bytes() == b"A film"


def test_a_film_replaced_after_the_plan_is_an_error(tmp_path: Path) -> None:
    path = make_film(tmp_path / "film.mp4", frames=8)
    folder = planned(tmp_path, path)
    planned_for, another = path.read_bytes(), make_film(tmp_path / "another.mp4", frames=12).read_bytes()

    def read(meanwhile: bytes) -> Film:
        with local_film(folder, silent) as here:
            path.write_bytes(meanwhile)
        return here.film

    assert read(planned_for) == folder.film
    for _ in ("while it is read", "before it is read"):
        with pytest.raises(RecordError, match=f"{folder.film_id}: has changed since"):
            read(another)
    path.write_bytes(planned_for)
    assert read(planned_for) == folder.film


def test_a_copy_is_fetched_for_reading_and_removed(store: ObjectStore, tmp_path: Path) -> None:
    path = make_film(tmp_path / "film.mp4", frames=8)
    folder = planned(tmp_path / "data", path)
    store.put("films/film.mp4", path.read_bytes())
    folder.save_film(folder.film.model_copy(update={"source": store.address("films/film.mp4")}))
    for _ in range(2):
        with local_film(folder, silent) as here:
            assert Path(here.film.source).read_bytes() == path.read_bytes()
    assert [method for method, _ in store.requests].count("GET") == 1
    copy = Path(here.film.source)
    left = copy.with_name(f"{temporary_start(copy)}abcd_123.MP4")
    left.write_bytes(b"by a killed process")
    copy.unlink()
    with local_film(folder, silent):
        assert not left.exists()
    delete_local_film(folder)
    assert not copy.parent.exists()


def test_a_fetched_cast_follows_its_address(store: ObjectStore, tmp_path: Path) -> None:
    cast = {"ポン太/1.png": b"one", "Hana/1.png": b"hana", "Hana/2.png": b"two"}
    for name, content in cast.items():
        store.put(f"cast/{name}", content)
    folder = fetch_folder(store.address("cast"), tmp_path)
    assert files_in(folder) == cast
    store.remove("cast/ポン太/1.png")
    store.put("cast/Hana/2.png", b"new")
    (folder / "Hana" / "1.png").unlink()  # as by a cleanup of caches
    store.requests.clear()
    assert files_in(fetch_folder(store.address("cast"), tmp_path)) == {"Hana/1.png": b"hana", "Hana/2.png": b"new"}
    assert [path.name for path in folder.iterdir() if path.name != ".cache"] == ["Hana"]
    assert sorted(key for _, key in store.requests) == ["", "cast/Hana/1.png", "cast/Hana/2.png"]


def test_an_empty_cast_is_an_error(store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match=r"s3://bucket/cast: nothing there"):
        fetch_folder(store.address("cast"), tmp_path)
