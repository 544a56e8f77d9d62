"""Hostile tars, as an attacker would publish them: one hostile member each, and an index that matches them."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from pipeline.publish.shards import read_index

Hostile = tuple[tarfile.TarInfo, bytes]


def member(name: str, content: bytes = b"", **fields: object) -> Hostile:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def hole(bytes_claimed: int) -> Hostile:
    """Sparse file: a kilobyte in the tar, its claimed size in memory."""
    content = b"1\n0\n512\n".ljust(512, b"\0") + bytes(512)
    claims = {"major": "1", "minor": "0", "name": "x-0.mp4", "realsize": str(bytes_claimed)}
    return member("x-0.mp4", content, pax_headers={f"GNU.sparse.{key}": value for key, value in claims.items()})


MEMBERS = {
    "a path that leads out": member("../../pwned.mp4", b"x"),
    "an absolute path": member("/tmp/pwned.mp4", b"x"),
    "a symbolic link": member("x-0.mp4", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "a hard link": member("x-0.mp4", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    "a device": member("x-0.mp4", type=tarfile.CHRTYPE, devmajor=1, devminor=5),
    "a pipe": member("x-0.mp4", type=tarfile.FIFOTYPE),
    "a size that the file has not": (member("x-0.mp4")[0], b"x"),
    "a hole": hole(1 << 36),
    "a broken map of holes": member("x-0.mp4", b"x", pax_headers={"GNU.sparse.map": "a,b"}),
    "a size beyond all numbers": member("x-0.mp4", b"x", pax_headers={"size": "9" * 30}),
}


def with_member(published: Path, root: Path, kind: str) -> Path:
    """Copy of the shards alone, with a hostile member at the end of the first; the index matches, as an attacker's
    would."""
    for path in (published / "shards").rglob("*.*"):
        target = root / path.relative_to(published)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    first = read_index(root).shards[0]
    path = root / "shards" / first.name
    with tarfile.open(path) as tar:
        members = [(info, tar.extractfile(info).read()) for info in tar]  # type: ignore[union-attr]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in (*members, MEMBERS[kind]):
            tar.addfile(info, io.BytesIO(content))
        if kind == "a size that the file has not":
            end = tar.offset - tarfile.BLOCKSIZE
    content = bytearray(buffer.getvalue())
    if kind == "a size that the file has not":
        claim = member("x-0.mp4", size=1 << 36)[0].tobuf(tarfile.GNU_FORMAT)
        content[end : end + len(claim)] = claim
    path.write_bytes(content)
    index = json.loads((root / "shards" / "index.json").read_text())
    for entry in index["shards"]:
        if entry["name"] == first.name:
            entry.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    (root / "shards" / "index.json").write_text(json.dumps(index))
    (root / "dataset.json").write_bytes((published / "dataset.json").read_bytes())
    return root
