"""Art of the composed films: characters and backgrounds of two visual novels in Debian's archive."""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from platformdirs import user_cache_path

from pipeline.core.errors import UserError

PACKAGES = ("renpy-thequestion", "renpy-demo")


def art_folder() -> Path:
    """Return the folder with the pictures of both packages, fetched with apt if not in the cache."""
    folder = user_cache_path("animegamer", ensure_exists=True) / "renpy"
    if not folder.exists():
        with TemporaryDirectory(dir=folder.parent) as scratch:  # two processes may fetch at once
            unpacked = Path(scratch) / folder.name
            unpacked.mkdir()
            _download(unpacked)
            for package in PACKAGES:
                (archive,) = unpacked.glob(f"{package}_*.deb")
                subprocess.run(["dpkg-deb", "-x", archive.name, "."], cwd=unpacked, check=True)  # noqa: S607
                archive.unlink()
            try:
                unpacked.rename(folder)
            except OSError:
                if not folder.exists():  # else another process was faster
                    raise
    return folder / "usr" / "share" / "games" / "renpy"


def _download(folder: Path) -> None:
    """Fetch both packages with apt-get; its lists may be missing or stale, so they are updated once."""
    commands = (["apt-get", "download", *PACKAGES], ["apt-get", "update"], ["apt-get", "download", *PACKAGES])
    message = ""
    for command in commands:
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        except (FileNotFoundError, subprocess.TimeoutExpired) as error:
            raise UserError(f"anime art needs Debian's apt-get: {error}") from error
        if done.returncode == 0 and command[1] == "download":
            return
        message = done.stderr.strip() or message
    raise UserError(f"`apt-get download {' '.join(PACKAGES)}` failed: {message}")
