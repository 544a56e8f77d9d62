"""Remote objects, fetched and uploaded whole through fsspec (`s3://bucket/set`, `gs://...`, `https://...`).

    Remote("s3://bucket/data").find("shards")

Each store's own package reads its credentials from the environment (for S3 AWS_ACCESS_KEY_ID, AWS_PROFILE,
AWS_ENDPOINT_URL, ...; for all stores FSSPEC_*). They are never stored, and an address that carries a secret is rejected
before it is stored or shown. A build of local films never imports fsspec.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from typing import Any

from pipeline.core.atomic import replacing
from pipeline.core.errors import UserError
from pipeline.core.progress import Progress, silent

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_S3_OPTIONS: dict[str, Any] = {
    "config_kwargs": {"retries": {"mode": "standard"}},  # 3 attempts with short delays, or AWS_MAX_ATTEMPTS
    "max_concurrency": 4,  # of 50 MiB each
}
_S3FS_ATTEMPTS = 2
"""Attempts of s3fs, each of 3 by botocore: a server that never answers fails after 90 seconds, not 4 minutes."""
_SMALL_TRANSFERS_AT_ONCE = 16
_LARGE_BYTES = 32 << 20
"""Size from which files are transferred one at a time: s3fs splits a large one and holds its parts in memory."""
_STORE_EXCEPTIONS = {
    "botocore.exceptions": ("BotoCoreError", "ClientError"),
    "aiohttp": ("ClientError",),
    "gcsfs.retry": ("HttpError",),
    "google.auth.exceptions": ("GoogleAuthError",),
    "azure.core.exceptions": ("AzureError",),
}
_MARKS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "updated", "Last-Modified", "created")
"""Keys of the stores' version marks of an object's content, the most reliable first."""


class RemoteError(UserError):
    """An address that cannot be used; the message names it and the remedy, and repeats no secret."""


class NotThereError(RemoteError):
    """The store has no object at the address."""


def is_address(text: str) -> bool:
    """Return True if the text is an address such as `s3://bucket/data`, not a path on this machine."""
    return _ADDRESS.fullmatch(text) is not None


def checked_remote(address: str) -> str:
    """Return the address without trailing slashes if it is safe to show and store.

    Raises:
        RemoteError: it carries a password or a query, or names no bucket or host; the message repeats only its scheme.
    """
    if not (match := _ADDRESS.fullmatch(address)):
        raise RemoteError("this is not an address such as s3://bucket/data")
    scheme, place = match.groups()
    user = place.rpartition("@")[0]  # up to the last @: a password may hold slashes
    if "?" in place or ":" in user or (user and scheme.lower().startswith("http")):
        remedy = "put the credentials into the environment, or rename the object"
        raise RemoteError(f"an address at {scheme}:// carries a password or query, which would be stored; {remedy}")
    if not place.strip("/") or _CONTROL.search(place):
        raise RemoteError(f"an address at {scheme}:// names no bucket or host; an address looks like s3://bucket/data")
    return address.rstrip("/")


@dataclass(frozen=True)
class RemoteObject:
    """Listing of an object in its store."""

    mark: str
    """Version mark of the content in the store, such as an ETag; "" if the store gives none."""
    bytes: int

    @property
    def identity(self) -> str:
        """Size and version mark."""
        return f"{self.bytes} {self.mark}"


class Remote:
    """An object, or a folder of objects, at an address."""

    def __init__(self, address: str) -> None:
        """Load the package for the address's protocol, without a request to the store.

        Raises:
            RemoteError: the address is rejected, or the package for its protocol is missing.
        """
        self.address = checked_remote(address)
        with _as_remote_errors(self.address):
            self._files, root = _opened(self.address)
        self._root = root.rstrip("/")

    def find(self, under: str = "") -> dict[str, RemoteObject]:
        """List the objects of the folder, by name relative to it, uncached; empty if there is no folder.

        Names with a leading dot in any part are left out, and so are the empty objects that represent folders.

        Args:
            under: only the object of this name, or the objects in the folder of this name.

        Raises:
            RemoteError: the store cannot be reached, or an object's name would lead out of a folder on this machine.
        """
        with _as_remote_errors(self._address_of(under)):
            self._files.invalidate_cache()
            listed = self._files.find(self._place_of(under), detail=True)
            infos = {place: info or self._files.info(place) for place, info in listed.items()}
        if self._root in infos:
            raise RemoteError(f"{self.address} is an object, not a folder; name a folder")
        names = {place: place.removeprefix(f"{self._root}/") for place in infos if not place.endswith("/")}
        for name in names.values():
            self._check(name)
        return {names[place]: _found(infos[place]) for place in names if not is_hidden(names[place])}

    def names(self) -> list[str]:
        """List the names of the objects in the folder itself, uncached. Raises RemoteError if it cannot be listed."""
        with _as_remote_errors(self.address):
            self._files.invalidate_cache()
            listed = self._files.ls(self._root, detail=False)
        return [place.rpartition("/")[2] for place in listed if not place.endswith("/")]

    def look(self) -> RemoteObject:
        """Look up the object at the address.

        Raises:
            RemoteError: it does not exist, is a folder, or the store cannot be reached.
        """
        with _as_remote_errors(self.address):
            self._files.invalidate_cache()
            info = self._files.info(self._root)
        if info["type"] == "directory":
            raise RemoteError(f"{self.address} is a folder; name a file in it")
        return _found(info)

    def fetch(self, wanted: Mapping[str, RemoteObject], folder: Path, progress: Progress = silent) -> None:
        """Fetch objects as listed by `find` to files of the same names, each renamed to its name once it is complete.

        Raises:
            RemoteError: an object cannot be fetched, or has changed since it was listed.
        """
        sizes = {name: found.bytes for name, found in wanted.items()}

        def get(name: str, meter: Any) -> None:
            self._get(name, folder / name, wanted[name], meter)

        Transfers(sum(sizes.values()), progress).run(get, sizes)

    def fetch_file(self, path: Path, found: RemoteObject | None = None, progress: Progress = silent) -> None:
        """Fetch the object at the address to a file, renamed to its name once it is complete.

        Raises:
            RemoteError: it cannot be fetched, or differs in size from `found`, the result of `look`.
        """
        size = found.bytes if found else 0
        Transfers(size, progress).run(lambda _, meter: self._get("", path, found, meter), {"": size})

    def send(self, groups: Iterable[Iterable[str]], folder: Path, progress: Progress = silent) -> None:
        """Upload files of a folder as objects of the same names, a group after the other.

        An object store shows the old object or the complete new one, never a part of it. Plain file systems behind
        sftp:// or smb:// do show parts.
        """
        sizes = [{name: (folder / name).stat().st_size for name in group} for group in groups]
        transfers = Transfers(sum(sum(group.values()) for group in sizes), progress)
        for group in sizes:
            transfers.run(lambda name, meter: self._put(folder / name, name, meter), group)

    def remove(self, groups: Iterable[Iterable[str]]) -> None:
        """Remove the objects that still exist, a group after the other."""
        for group in groups:
            Transfers(0, silent).run(lambda name, _: self._remove(name), dict.fromkeys(group, 0))

    def _get(self, name: str, path: Path, found: RemoteObject | None, meter: Any) -> None:
        with _as_remote_errors(self._address_of(name)), replacing(path) as temporary:
            self._files.get_file(self._place_of(name), str(temporary), callback=meter)
            if found and found.bytes and temporary.stat().st_size != found.bytes:
                raise RemoteError(f"{self._address_of(name)} changed while it was fetched; run the same command again")

    def _put(self, path: Path, name: str, meter: Any) -> None:
        from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

        with _as_remote_errors(self._address_of(name)):
            if not isinstance(self._files, LocalFileSystem):
                self._files.put_file(str(path), self._place_of(name), callback=meter)
                return
            with replacing(Path(self._place_of(name))) as temporary:
                copyfile(path, temporary)

    def _remove(self, name: str) -> None:
        with _as_remote_errors(self._address_of(name)), suppress(FileNotFoundError):
            self._files.rm_file(self._place_of(name))

    def _place_of(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")

    def _address_of(self, name: str) -> str:
        return f"{self.address}/{name}".rstrip("/")

    def _check(self, name: str) -> None:
        if not all(map(is_file_name, name.split("/"))):
            raise RemoteError(f"{self.address} holds an object named {name!r}, not a valid file name; delete it there")


def is_file_name(part: str) -> bool:
    """Return True if a part of an object's name is a valid file or folder name, and not `.` or `..`."""
    return part not in ("", ".", "..") and "/" not in part and not _CONTROL.search(part)


def is_hidden(name: str) -> bool:
    """Return True if a file's relative name is hidden, so never transferred: locks, caches, temporary files."""
    return any(part.startswith(".") for part in name.split("/"))


def _opened(address: str) -> tuple[Any, str]:
    """The fsspec file system of the address, and the path in it."""
    from fsspec.config import conf  # type: ignore[import-untyped]
    from fsspec.core import url_to_fs  # type: ignore[import-untyped]

    scheme = address.partition(":")[0].lower()
    is_s3 = scheme in ("s3", "s3a")
    options = _S3_OPTIONS if is_s3 else _http_options() if scheme.startswith("http") else {}
    files, place = url_to_fs(address, **{key: options[key] for key in options.keys() - conf.get(scheme, {}).keys()})
    if is_s3:
        files.retries = _S3FS_ATTEMPTS
    return files, str(place)


def _http_options() -> dict[str, Any]:
    from aiohttp import ClientTimeout

    # no limit on a whole film, only on silence; aiohttp's default limit is 5 minutes in total
    return {"client_kwargs": {"timeout": ClientTimeout(total=None, sock_connect=10, sock_read=60)}}


def _found(info: Mapping[str, Any]) -> RemoteObject:
    size = int(info.get("size") or 0)  # some web servers send no size
    mark = next((str(info[key]).strip('"') for key in _MARKS if info.get(key)), "")
    return RemoteObject(mark, size)


@contextmanager
def _as_remote_errors(address: str) -> Iterator[None]:
    """Convert the exceptions of a store's package to RemoteError.

    The cause is dropped: schedulers store tracebacks, and a package's message may repeat an endpoint with its password.
    """
    try:
        yield
    except _store_errors() as error:
        raise _remote_error(address, error) from None


def _remote_error(address: str, error: Exception) -> RemoteError:
    # fsspec reports every HTTP error about a file as FileNotFoundError
    if address.startswith("http") and isinstance(error.__cause__, _store_errors()):
        error = error.__cause__
    kind = NotThereError if isinstance(error, FileNotFoundError) else RemoteError
    return kind(f"{address}: {_reason(error)}")


def _store_errors() -> tuple[type[Exception], ...]:
    """Exceptions of the stores' packages, as far as those packages are loaded."""
    loaded = [(sys.modules[module], names) for module, names in _STORE_EXCEPTIONS.items() if module in sys.modules]
    return (OSError, ImportError, ValueError, *(getattr(module, name) for module, names in loaded for name in names))


def _reason(error: Exception) -> str:
    text = re.sub(r"//[^\s\"']*@", "//", re.sub(r"\?[^\s\"']+", "", " ".join(str(error).split())))
    text = text.rstrip(".") or type(error).__name__
    if isinstance(error, ImportError):
        return f"{text}; for s3:// and https:// run `make install-cloud`, for others install the package of that name"
    if isinstance(error, FileNotFoundError):
        return f"nothing found there ({text}); check the spelling"
    if isinstance(error, PermissionError) or "Credentials" in type(error).__name__:
        return f"no permission ({text}); the environment must hold credentials for it (for S3 AWS_ACCESS_KEY_ID, ...)"
    return f"{text}; check the address and the network (for S3 also AWS_ENDPOINT_URL), then run the same command again"


class Transfers:
    """Transfers of files, small ones several at once, with the progress of all bytes together."""

    def __init__(self, total_bytes: int, progress: Progress) -> None:
        self._done, self._total, self._progress = 0, total_bytes, progress

    def run(self, work: Callable[[str, Any], None], sizes: Mapping[str, int]) -> None:
        """Call `work` with the name of each file and a meter for its bytes; return when all are done.

        The first error cancels the transfers not yet started, and so does a `progress` that raises.
        """
        small = {name: size for name, size in sizes.items() if size < _LARGE_BYTES}
        for batch in (small, *({name: sizes[name]} for name in sizes if name not in small)):
            self._run_batch(work, batch)
            self._done += sum(batch.values())

    def _run_batch(self, work: Callable[[str, Any], None], sizes: Mapping[str, int]) -> None:
        from fsspec.callbacks import Callback  # type: ignore[import-untyped]

        meters = {name: Callback() for name in sizes}

        def transfer(name: str) -> None:
            work(name, meters[name])
            meters[name].absolute_update(sizes[name])  # not every store's package counts bytes

        pool = ThreadPoolExecutor(_SMALL_TRANSFERS_AT_ONCE)
        try:
            running: set[Future[None]] = {pool.submit(transfer, name) for name in sizes}
            while running:
                done, running = wait(running, timeout=0.2, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                self._progress(self._done + sum(meter.value for meter in meters.values()), self._total)
        finally:
            pool.shutdown(cancel_futures=True)
