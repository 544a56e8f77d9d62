"""Download of Big Buck Bunny and a trailer cut from it: the film of demo, tests and benchmark.

Both are in moviepy's source package, which pip downloads by name (never installs). The files are checked by hash and
cached in the user's cache folder, so they are fetched once.

    python -m examples.bunny.film            prints the film's path

Big Buck Bunny (c) 2008 Blender Foundation, CC BY 3.0, peach.blender.org
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import IO

import av
from platformdirs import user_cache_path

from pipeline.core.atomic import replacing
from pipeline.core.errors import UserError

ATTRIBUTION = "Big Buck Bunny (c) 2008 Blender Foundation, CC BY 3.0, peach.blender.org"

FILM_SECONDS = 596.5
FILM_SHA256 = "475fbbf34c4c367998f80c29ea03b15a743941179b12da3373fc6706e68621d0"
_PACKAGE = "moviepy==2.2.1"
_MEDIA = "docs/_static/medias/getting_started/moviepy_10_minutes"
_SHA256 = {
    "big_buck_bunny.mp4": FILM_SHA256,
    "big_buck_bunny_trailer.mp4": "ce0d2ba68822a89ae65ee41b53be9de621771130c2aa1d0ff02d935df75b59ae",
}


def fetch_bunny() -> Path:
    """Return the path of the whole film (1280x720, 24 fps, 596.5 s, 50 MB), fetched if not in the cache."""
    return _fetch("big_buck_bunny.mp4")


def fetch_trailer() -> Path:
    """Return the path of a 55-second trailer cut from the film, with cross-fades, titles and slow motion."""
    return _fetch("big_buck_bunny_trailer.mp4")


def short_films(count: int, seconds: float) -> list[Path]:
    """Return the paths of short films copied from the film at keyframes, evenly spread; kept in the cache."""
    film = fetch_bunny()
    paths = [film.with_name(f"big_buck_bunny_{seconds:g}s_{number:02d}of{count}.mp4") for number in range(count)]
    for number, path in enumerate(paths):
        if not path.exists():
            with replacing(path) as temporary:
                _copy_packets(film, temporary, FILM_SECONDS * number / count, seconds)
    return paths


def _copy_packets(film: Path, out: Path, start_seconds: float, seconds: float) -> None:
    """Copy the video packets of a part of the film that begins at the keyframe before `start_seconds`."""
    with av.open(str(film)) as source, av.open(str(out), "w") as short:
        stream = source.streams.video[0]
        copied = short.add_stream_from_template(stream)
        assert stream.time_base is not None
        source.seek(int(start_seconds / stream.time_base), stream=stream)
        start = None
        for packet in source.demux(stream):
            if packet.pts is None or packet.dts is None:
                break
            start = packet.pts if start is None else start
            if (packet.pts - start) * stream.time_base >= seconds:
                break
            packet.pts, packet.dts, packet.stream = packet.pts - start, packet.dts - start, copied
            short.mux(packet)


def _fetch(name: str) -> Path:
    path = user_cache_path("animegamer", ensure_exists=True) / "films" / name
    if not path.exists():
        _download(path.parent)
    if _sha256(path) != _SHA256[name]:
        path.unlink()
        raise UserError(f"{path} was damaged and has been removed; run this again to fetch it")
    return path


def _download(folder: Path) -> None:
    """Download moviepy's source package and extract both films into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "moviepy"]
        done = subprocess.run([*command, "--dest", scratch, _PACKAGE], capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(f"pip could not download {_PACKAGE}:\n{done.stderr.strip()[-2000:]}")
        (package,) = Path(scratch).glob("moviepy-*.tar.gz")
        with tarfile.open(package) as source:
            _copy(_member(source, f"{_MEDIA}/trailer_bbb.mp4"), Path(scratch, "big_buck_bunny_trailer.mp4"))
            archive = zipfile.ZipFile(_member(source, f"{_MEDIA}/moviepy_10_minutes.zip"))
            with archive, archive.open("moviepy_10_minutes/resources/bbb.mp4") as film:
                _copy(film, Path(scratch, "big_buck_bunny.mp4"))
        for name in _SHA256:
            (Path(scratch) / name).replace(folder / name)


def _member(source: tarfile.TarFile, ending: str) -> IO[bytes]:
    for member in source:
        if member.name.endswith(ending) and (stream := source.extractfile(member)):
            return stream
    raise UserError(f"{_PACKAGE} no longer carries {ending}")


def _copy(stream: IO[bytes], target: Path) -> None:
    with target.open("wb") as file:
        shutil.copyfileobj(stream, file)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """Print the path of the film."""
    try:
        print(fetch_bunny())
    except UserError as error:
        raise SystemExit(str(error)) from error
    print(ATTRIBUTION, file=sys.stderr)


if __name__ == "__main__":
    main()
