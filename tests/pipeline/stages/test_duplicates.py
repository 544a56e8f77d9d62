"""Perceptual hashes that survive re-encoding, and a search for duplicates that agrees with an exhaustive comparison."""

from __future__ import annotations

import time

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.stages.duplicates import HashedClip, find_repeats, frame_hash

NEAR = 24
GAP = 120.0


def painting(seed: int) -> NDArray[np.uint8]:
    """Noise with the spectrum of pictures: equal power at every scale."""
    random = np.random.default_rng(seed)
    layers = [
        cv2.resize(random.normal(0, 22, (2 * 2**scale, 3 * 2**scale)), (720, 480), interpolation=cv2.INTER_CUBIC)
        for scale in range(7)
    ]
    return np.clip(np.sum(layers, axis=0) + 120, 0, 255).astype(np.uint8)


def bits_between(one: str, other: str) -> int:
    return (int(one, 16) ^ int(other, 16)).bit_count()


def jpeg(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.asarray(cv2.imdecode(cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 40])[1], 0), np.uint8)


def test_a_hash_survives_coding_size_and_light() -> None:
    for seed in range(10):
        original = painting(seed)
        smaller = cv2.resize(original, (424, 240), interpolation=cv2.INTER_AREA)
        darker = (original * 0.7).astype(np.uint8)
        for changed in (jpeg(original), smaller, darker):
            assert bits_between(frame_hash(original), frame_hash(changed)) <= 8


def test_a_line_of_text_leaves_pictures_near_and_other_pictures_are_far() -> None:
    for seed in range(10):
        original = painting(seed)
        lettered = cv2.putText(original.copy(), "An unlucky bird", (250, 240), cv2.FONT_HERSHEY_DUPLEX, 1, 255, 2)
        assert bits_between(frame_hash(original), frame_hash(lettered)) <= NEAR
        assert bits_between(frame_hash(original), frame_hash(painting(seed + 100))) > 2 * NEAR


def test_flat_frames_have_no_hash() -> None:
    assert frame_hash(np.full((120, 180), 7, np.uint8)) == ""
    assert frame_hash(np.random.default_rng(0).integers(10, 20, (120, 180), dtype=np.uint8)) == ""


class Drawer:
    """Source of hashes that drift like those of moving pictures."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def shot(self, frames: int, drift: int = 3) -> list[str]:
        bits = self._random.integers(0, 2, 256, dtype=np.uint8)
        hashes = []
        for _ in range(frames):
            bits[self._random.choice(256, drift, replace=False)] ^= 1
            hashes.append(np.packbits(bits).tobytes().hex())
        return hashes

    def blurred(self, hashes: list[str], flips: int) -> list[str]:
        """Hashes of the same frames in another encode."""
        result = []
        for text in hashes:
            bits = np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8))
            bits[self._random.choice(256, flips, replace=False)] ^= 1
            result.append(np.packbits(bits).tobytes().hex())
        return result


def clip(hashes: list[str], film: str = "film", scene: int = 0, start: float = 0.0, held: bool = False) -> HashedClip:
    return HashedClip(film, scene, start, 2.0, held, tuple(hashes))


def test_a_repeat_is_found_at_any_phase_in_another_film() -> None:
    drawer = Drawer(1)
    shot = drawer.shot(48)
    film = [clip(shot[start : start + 16], scene=3, start=start / 8) for start in (0, 16, 32)]
    trailer = clip(drawer.blurred(shot[7:23], flips=16), "trailer")
    assert find_repeats([*film, trailer], NEAR, GAP) == {3: [0, 1]}


def test_along_a_copy_half_as_like_is_enough() -> None:
    drawer = Drawer(10)
    film = [clip(drawer.shot(16, drift=0), scene=scene, start=2.0 * scene) for scene in range(4)]
    flips = (8, 40, 8, 60)
    copy = [
        clip(drawer.blurred(list(one.hashes), count), "copy", one.scene, 100.5 + one.start_seconds)
        for one, count in zip(film, flips, strict=True)
    ]
    with_one_witness = [copy[0], copy[1]]
    elsewhere = clip(list(copy[1].hashes), "copy", 9, 130.0)
    assert find_repeats([*film, *copy, elsewhere], NEAR, GAP) == {4: [0], 5: [1], 6: [2]}
    assert find_repeats([*film, *with_one_witness], NEAR, GAP) == {4: [0]}


def test_half_of_the_frames_must_be_shared() -> None:
    drawer = Drawer(2)
    shot, other = drawer.shot(16, drift=0), drawer.shot(16)
    first = clip(shot)
    assert find_repeats([first, clip(shot[:8] + other[:8], "b")], NEAR, GAP) == {1: [0]}
    assert find_repeats([first, clip(shot[:7] + other[:9], "b")], NEAR, GAP) == {}


def test_distances_up_to_the_bound_match() -> None:
    drawer = Drawer(3)
    shot = drawer.shot(16, drift=0)
    pair = [clip(shot), clip(drawer.blurred(shot, flips=14), "b")]
    assert find_repeats(pair, 14, GAP) == {1: [0]}
    assert find_repeats(pair, 13, GAP) == {}


def test_within_a_film_only_far_clips_of_other_scenes_repeat() -> None:
    shot = Drawer(4).shot(16, drift=0)
    first = clip(shot, scene=1)
    assert find_repeats([first, clip(shot, scene=5, start=500.0)], NEAR, GAP) == {1: [0]}
    assert find_repeats([first, clip(shot, scene=1, start=500.0)], NEAR, GAP) == {}
    assert find_repeats([first, clip(shot, scene=5, start=100.0)], NEAR, GAP) == {}


def test_a_held_drawing_repeats_in_its_own_scene() -> None:
    shot = Drawer(5).shot(16, drift=0)
    held = [clip(shot, start=2.0 * number, held=True) for number in range(3)]
    assert find_repeats(held, NEAR, GAP) == {1: [0], 2: [0, 1]}
    talking = [held[0], clip(shot, start=2.0), held[2]]
    assert find_repeats(talking, NEAR, GAP) == {2: [0]}


def test_flat_frames_match_nothing() -> None:
    shot = Drawer(6).shot(16, drift=0)
    fading = clip([""] * 10 + shot[:6], "b")
    nearly_black = clip([""] * 14 + shot[:2], "c")
    black = clip([""] * 16, "d")
    assert find_repeats([clip(shot), fading, nearly_black, black, clip([""] * 16, "e")], NEAR, GAP) == {1: [0]}


def test_the_index_finds_the_same_as_an_exhaustive_comparison() -> None:
    drawer = Drawer(8)
    shots = [drawer.shot(40, drift=4) for _ in range(12)]
    random = np.random.default_rng(8)
    clips = []
    for number in range(90):
        shot, start = shots[random.integers(12)], int(random.integers(24))
        hashes = drawer.blurred(shot[start : start + 16], flips=int(random.integers(0, 20)))
        clips.append(clip(hashes, film=f"film {number % 5}", scene=number, start=float(number * 50)))
    slow: dict[int, list[int]] = {}
    for later, one in enumerate(clips):
        for earlier, other in enumerate(clips[:later]):
            near = sum(any(bits_between(a, b) <= NEAR for b in other.hashes) for a in one.hashes)
            apart = one.film != other.film or one.start_seconds - other.start_seconds >= GAP
            if apart and 2 * near >= 16:
                slow.setdefault(later, []).append(earlier)
    assert sum(map(len, slow.values())) > 40
    assert find_repeats(clips, NEAR, GAP) == slow


@pytest.mark.nightly
def test_twenty_thousand_clips_take_seconds() -> None:
    drawer = Drawer(9)
    clips = []
    for film in range(10):
        for scene in range(1000):
            shot = drawer.shot(32, drift=3)
            clips += [clip(shot[at : at + 16], str(film), scene, 4.0 * scene + at / 8) for at in (0, 16)]
    clips[-1] = clip(drawer.blurred(list(clips[0].hashes), 8), "9", 999, 4000.0)
    begun = time.process_time()
    assert find_repeats(clips, NEAR, GAP) == {len(clips) - 1: [0, 1]}
    assert time.process_time() - begun < 30
