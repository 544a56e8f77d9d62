"""Audit sample: sizes of strata, chance, order, and files that are no sample."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pipeline.core.errors import UserError
from pipeline.reviews.audit.sampling import SAMPLE_FILE, Span, draw, read_sample, save_sample


def spans(**strata: int) -> list[Span]:
    """Spans in time order, stratum by stratum."""
    names = [name for name, count in strata.items() for _ in range(count)]
    return [
        Span(film_sha256="ab" * 32, start_seconds=2.0 * place, end_seconds=2.0 * place + 2, stratum=name)
        for place, name in enumerate(names)
    ]


def test_a_simple_sample_is_each_seeds_own_and_in_random_order() -> None:
    clips = spans(all=500)
    first = draw(clips, 100, None, seed=1, blind=True)
    assert first == draw(clips, 100, None, seed=1, blind=True)
    assert first != draw(clips, 100, None, seed=2, blind=True)
    assert len(set(first.spans)) == 100
    assert first.blind
    starts = [span.start_seconds for span in first.spans]
    assert starts != sorted(starts)
    early = sum(start < 500 for start in starts[:50])
    assert 12 <= early <= 38  # the first half of the audit comes from both halves of the film


def test_every_clip_has_the_same_chance() -> None:
    clips = spans(all=20)
    counts = Counter(span for seed in range(2000) for span in draw(clips, 5, None, seed, blind=False).spans)
    assert len(counts) == 20
    assert all(abs(count - 500) < 4 * (2000 * 0.25 * 0.75) ** 0.5 for count in counts.values())


def test_strata_keep_their_shares_and_rare_ones_are_seen() -> None:
    drawn = draw(spans(common=900, some=80, rare=18, two=2), 100, "level", seed=3, blind=False)
    counts = Counter(span.stratum for span in drawn.spans)
    assert counts["rare"] == 5
    assert counts["two"] == 2
    assert counts["some"] in (7, 8)
    assert counts["common"] == 100 - 5 - 2 - counts["some"]
    assert drawn.strata == {"common": 900, "some": 80, "rare": 18, "two": 2}


def test_strata_are_mixed_in_the_order_of_a_sample() -> None:
    order = [span.stratum for span in draw(spans(a=500, b=500), 100, "level", seed=3, blind=False).spans]
    assert 10 <= order[:50].count("a") <= 40


def test_a_sample_of_all_clips_has_them_all() -> None:
    clips = spans(a=6, b=3)
    assert set(draw(clips, 9, "character", seed=0, blind=False).spans) == set(clips)


def test_a_sample_beyond_the_data_set_is_refused() -> None:
    with pytest.raises(UserError, match=r"keeps 9 clips, fewer than --size 10"):
        draw(spans(a=9), 10, None, seed=0, blind=False)
    with pytest.raises(UserError, match=r"--by character makes 3 strata"):
        draw(spans(a=1, b=1, c=1), 2, "character", seed=0, blind=False)


def test_it_is_read_as_written(tmp_path: Path) -> None:
    assert read_sample(tmp_path) is None
    drawn = draw(spans(a=6, b=3), 8, "level", seed=7, blind=True)
    save_sample(tmp_path, drawn)
    assert read_sample(tmp_path) == drawn


@pytest.mark.parametrize("damage", ["", "{}", "[1]", '"strata": {"a": 6', '"a": 2,'])
def test_a_damaged_sample_is_refused(tmp_path: Path, damage: str) -> None:
    save_sample(tmp_path, draw(spans(a=6, b=3), 8, "level", seed=7, blind=True))
    path = tmp_path / SAMPLE_FILE
    text = path.read_text()
    path.write_text(text.replace('"a": 6,', damage) if damage.startswith('"') else damage)
    with pytest.raises(UserError, match=r"sample\.json: is not a sample"):
        read_sample(tmp_path)
