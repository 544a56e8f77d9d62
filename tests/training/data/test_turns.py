"""Turns read from shards: real tars of a small dataset, from disk, over HTTP and through fsspec; and damaged ones."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer  # noqa: TID251 - it serves shards to the test
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch

from examples.world.barcode import read_stripes
from models.tokens import State
from pipeline.core.config import ShardSettings
from pipeline.core.errors import UserError
from pipeline.publish.shards import file_sha256, read_index, write_shards
from pipeline.video.clip_files import read_clip, write_clip
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.media.painted_clips import paint_number, read_moment
from training.data.shards import open_shards
from training.data.turns import Catalog, PackedTurn, offered, read_texts, read_turns

SETTINGS = ShardSettings(samples=3, val_share=0.25, block_seconds=5)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two films of six scenes, in shards of at least three clips, captioned by a model."""
    root = tmp_path_factory.mktemp("dataset")
    write_shards(make_dataset(root, scenes=6, captioner=MODEL), SETTINGS)
    return root


@pytest.fixture
def copied(dataset: Path, tmp_path: Path) -> Path:
    """Copy of the shards that a test may damage."""
    for path in (dataset / "shards").rglob("*.*"):
        target = tmp_path / path.relative_to(dataset)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    return tmp_path


def test_all_clips_come_with_their_bytes_and_in_time_order(dataset: Path) -> None:
    index = read_index(dataset)
    both = []
    for split in ("train", "val"):
        turns = list(read_turns(open_shards(dataset, split)))
        both += turns
        assert len(turns) == index.counts.split[split]
        for film in index.counts.film:
            starts = [packed.turn.sample.start_seconds for packed in turns if packed.turn.sample.film_id == film]
            assert starts == sorted(starts)
            assert starts
    for packed in both:
        film_id = packed.turn.sample.film_id
        assert packed.video == (dataset / f"films/{film_id}/clips/{packed.clip_id}.mp4").read_bytes()
    assert len({packed.clip_id for packed in both}) == len(both) == 2 * 12 - 5


def test_a_turn_matches_the_tables(dataset: Path) -> None:
    turns = {turn.clip_id: turn for turn in read_texts(open_shards(dataset, "train"))}
    first = next(iter(turns.values()))
    assert first.instruction == "Character: fox; Motion: barely rides a broom over the café; Background: 夏の海."
    assert first.sample.caption.SC == 0
    assert first.state == State(level=1, social=0, entertainment=1, stamina=1)
    assert first.measured == (True, True, True, True)
    assert first.shard.startswith("train/")


def test_unmeasured_values_are_neutral_in_the_prompt_and_marked(tmp_path: Path) -> None:
    write_shards(make_dataset(tmp_path, films=1), SETTINGS)  # `rules` say neither social nor the others
    turn = next(read_texts(open_shards(tmp_path, "train")))
    assert turn.sample.caption.ST is None
    assert turn.state == State(level=turn.sample.motion.level, social=0, entertainment=0, stamina=-1)
    assert turn.measured == (True, False, False, False)


@contextmanager
def served(folder: Path, handler: Callable[..., SimpleHTTPRequestHandler] = SimpleHTTPRequestHandler) -> Iterator[str]:
    """Serve the folder over HTTP on a port of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Flaky(SimpleHTTPRequestHandler):
    """Handler that fails the first request of every path and then sends the file."""

    seen: set[str] = set()  # noqa: RUF012 (the server makes a handler for each request)

    def send_head(self) -> Any:
        if self.path in self.seen:
            return super().send_head()
        self.seen.add(self.path)
        self.send_error(503)
        return None


@pytest.mark.slow
def test_shards_over_http_from_a_flaky_server_are_the_same(dataset: Path) -> None:
    here = list(read_turns(open_shards(dataset, "val")))
    with served(dataset, _Flaky) as address:
        there = list(read_turns(open_shards(address + "/", "val")))
    assert there == here
    assert here
    assert len(_Flaky.seen) == 1 + len(open_shards(dataset, "val"))


def test_shards_are_read_from_any_file_system_of_fsspec(dataset: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(str(dataset / "shards"), "/bucket/set/shards", recursive=True)
    assert list(read_turns(open_shards("memory://bucket/set", "val"))) == list(read_turns(open_shards(dataset, "val")))


def test_missing_shards_are_reported(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"index.json: no such file"):
        open_shards(tmp_path, "train")
    with served(tmp_path) as address, pytest.raises(UserError, match=r"index.json: no such file"):
        open_shards(address, "train")
    with pytest.raises(UserError, match=r"nowhere://set.*: Protocol not known"):
        open_shards("nowhere://set", "train")
    write_shards(make_dataset(tmp_path, films=1), ShardSettings(val_share=0))
    with pytest.raises(UserError, match="has no shard of the split val; build with another"):
        open_shards(tmp_path, "val")
    (tmp_path / "shards/index.json").write_text('{"schema": 6}')
    with pytest.raises(UserError, match="is damaged, "):
        open_shards(tmp_path, "train")


def test_a_truncated_shard_gives_no_sample(copied: Path) -> None:
    shard = open_shards(copied, "train")[1]
    whole = Path(shard.address).read_bytes()
    Path(shard.address).write_bytes(whole[: len(whole) // 2])
    taken = []
    with pytest.raises(
        UserError, match=rf"{shard.name} is truncated or replaced, with {len(whole) // 2} bytes, not {len(whole)}"
    ):
        taken += [packed.turn.shard for packed in read_turns(open_shards(copied, "train"))]
    assert shard.name not in taken


def test_a_flipped_bit_is_found(copied: Path) -> None:
    path = Path(open_shards(copied, "train")[0].address)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"{path.name} is damaged, with another hash"):
        next(read_turns(open_shards(copied, "train")))


def _repack(copied: Path, change: Callable[[dict[str, bytes]], dict[str, bytes]], *, cut: int | None = None) -> str:
    """Change the members of the first shard and update the index, as a broken program would; return its second clip."""
    shard = open_shards(copied, "train")[0]
    path = Path(shard.address)
    with tarfile.open(path) as tar:
        members = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    with tarfile.open(path, "w") as tar:
        for name, content in change(members).items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    path.write_bytes(path.read_bytes()[:cut])
    index = json.loads((copied / "shards/index.json").read_text())
    for entry in index["shards"]:
        if entry["name"] == shard.name:
            entry.update(bytes=path.stat().st_size, sha256=file_sha256(path))
    (copied / "shards/index.json").write_text(json.dumps(index))
    return list(dict.fromkeys(name.split(".")[0] for name in members))[1]


@pytest.mark.parametrize(
    ("kind", "spoil", "says"),
    [
        ("mp4", None, "lacks its .mp4"),
        ("txt", b"\xff\xfe", "its instruction is not UTF-8 text"),
        ("json", b"{}", "its JSON is not a valid sample (clip_id: Field required"),
        ("json", b'{"clip_id":', "its JSON is not a valid sample (Invalid JSON"),
    ],
)
def test_a_damaged_sample_is_named(copied: Path, kind: str, spoil: bytes | None, says: str) -> None:
    def change(members: dict[str, bytes]) -> dict[str, bytes]:
        name = [name for name in members if name.endswith(kind)][1]
        return {key: value for key, value in (members | {name: spoil}).items() if value is not None}

    clip = _repack(copied, change)
    with pytest.raises(UserError, match=rf"000000\.tar[:,] clip {clip}") as raised:
        list(read_turns(open_shards(copied, "train")))
    assert says in str(raised.value)


def test_a_sample_under_another_name_is_named(copied: Path) -> None:
    def swap(members: dict[str, bytes]) -> dict[str, bytes]:
        one, other = [name for name in members if name.endswith("json")][1:3]
        return members | {one: members[other]}

    clip = _repack(copied, swap)
    with pytest.raises(UserError, match=f"clip {clip}: its JSON belongs to"):
        list(read_texts(open_shards(copied, "train")))


def test_a_tar_published_broken_is_reported_with_the_last_clip(copied: Path) -> None:
    first = next(read_texts(open_shards(copied, "train"))).clip_id
    _repack(copied, lambda members: members, cut=9_000)
    with pytest.raises(UserError, match=f"not a valid shard after clip {first} .unexpected end of data.; build"):
        list(read_turns(open_shards(copied, "train")))


def test_turns_out_of_order_are_refused(copied: Path) -> None:
    clip = _repack(copied, lambda members: dict(sorted(members.items(), reverse=True)))
    with pytest.raises(UserError, match=f"clip {clip} is not in time order"):
        Catalog.read(open_shards(copied, "train"))


def test_the_catalog_holds_every_turn_and_is_cached_while_the_shards_are_unchanged(copied: Path) -> None:
    kept = copied / "catalog.json"
    shards = open_shards(copied, "train")
    catalog = Catalog.read(shards, kept)
    assert catalog.turns == tuple(read_texts(shards))
    assert len(catalog) == read_index(copied).counts.split["train"]
    assert [len(catalog.by_shard[shard.name]) for shard in shards] == [shard.entry.samples for shard in shards]
    for shard in shards:
        Path(shard.address).rename(f"{shard.address}.away")
    assert Catalog.read(shards, kept) == catalog  # not one shard was opened
    with pytest.raises(UserError, match="no such file"):
        Catalog.read(shards)


def _painted(dataset: Path, tmp_path: Path, frames: int, *, said: int | None = None, side: int = 64) -> PackedTurn:
    """Turn whose clip numbers its frames: a barcode of the number 37 above, the moment as a grey below."""
    turn = next(read_texts(open_shards(dataset, "train")))
    path = tmp_path / "clip.mp4"
    pictures = [np.ascontiguousarray(paint_number(37, moment % 17)[:side]) for moment in range(frames)]
    write_clip(path, pictures, Fraction(8), 17)
    sample = turn.sample.model_copy(update={"frames": said or frames})
    return PackedTurn(turn.model_copy(update={"sample": sample}), path.read_bytes())


@pytest.mark.parametrize(("frames", "height", "width"), [(16, 64, 96), (17, 32, 48), (16, 128, 192)])
def test_frames_are_in_order_and_of_the_requested_size(
    dataset: Path, tmp_path: Path, frames: int, height: int, width: int
) -> None:
    frames_THWC = _painted(dataset, tmp_path, frames).frames(height, width)
    assert frames_THWC.shape == (17, height, width, 3)
    assert frames_THWC.dtype == torch.uint8
    assert frames_THWC.is_contiguous()
    pictures = [frame_HWC.numpy() for frame_HWC in frames_THWC]
    assert [read_stripes(picture) for picture in pictures] == [37] * 17
    moments = [*range(16), 15 if frames == 16 else 16]
    assert [round(read_moment(picture)) for picture in pictures] == moments


def test_frames_are_rgb_and_match_the_bgr_frames_of_the_pipeline(dataset: Path) -> None:
    packed = next(read_turns(open_shards(dataset, "train")))
    path = dataset / f"films/{packed.turn.sample.film_id}/clips/{packed.clip_id}.mp4"
    ours, theirs = packed.frames(64, 96).numpy()[:16].astype(int), read_clip(path)[..., ::-1].astype(int)
    assert np.abs(ours - theirs).max() <= 4  # two roundings of one conversion
    assert np.abs(ours - theirs[..., ::-1]).max() > 30


def test_another_number_of_frames_is_an_error(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train/.*: clip .* has 12 frames; this model takes 16 or 17"):
        _painted(dataset, tmp_path, 12).frames(64, 96)
    with pytest.raises(UserError, match=r"has 12 frames, 16 by its JSON"):
        _painted(dataset, tmp_path, 12, said=16).frames(64, 96)
    assert len(_painted(dataset, tmp_path, 8).frames(64, 96, count=9)) == 9


def test_a_picture_of_other_proportions_is_not_distorted(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is 96x48; 96x64 would distort it"):
        _painted(dataset, tmp_path, 16, side=48).frames(64, 96)


@pytest.mark.parametrize("keep", [0, 0.5])
def test_a_damaged_video_names_shard_and_clip(dataset: Path, tmp_path: Path, keep: float) -> None:
    packed = _painted(dataset, tmp_path, 16)
    cut = int(len(packed.video) * keep)
    damaged = PackedTurn(packed.turn, packed.video[:cut])
    with pytest.raises(UserError, match=rf"{packed.turn.shard}: clip {packed.clip_id} cannot be decoded"):
        damaged.frames(64, 96)


def test_the_page_is_offered_words_and_the_pairs_of_them_that_occur(dataset: Path) -> None:
    caption = next(read_turns(open_shards(dataset, "train"))).turn.sample.caption

    def told(who: tuple[str, ...], actor: str | None, motion: str | None, place: str | None) -> Any:
        return caption.model_copy(update={"characters": who, "actor": actor, "MD": motion, "EV": place})

    captions = [
        told(("Mika",), "Mika", "walk", "beach"),
        told(("Mika", "Kuro"), "Mika", "hug", "town"),
        told(("Kuro",), None, "walk", None),
        told((), None, None, None),
    ]
    assert offered(captions) == {
        "characters": ("Mika", "Kuro"),
        "motions": ("walk", "hug"),
        "places": ("beach", "town"),
        "together": {
            "Mika": ("walk", "hug", "beach", "town"),
            "Kuro": ("walk", "town"),
            "walk": ("beach",),
            "hug": ("town",),
        },
    }
    assert offered([told((), None, None, None)]) == {}
