"""Signs of collapse on clips that have them."""

from __future__ import annotations

import pytest
import torch

from training.phases.collapse import SIGNS, compared, signs_of


def clip() -> torch.Tensor:
    """Nine frames of grey noise that change."""
    grey = torch.randint(60, 200, (9, 16, 24, 1), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return grey.repeat(1, 1, 1, 3)


def test_each_collapse_raises_its_own_sign() -> None:
    plain = dict(zip(SIGNS, signs_of(clip()).tolist(), strict=True))
    assert plain["change"] > 20
    assert (plain["saturation"], plain["frozen"], plain["single_colour"]) == (0, 0, 0)
    assert plain["mosaic"] == pytest.approx(1, abs=0.1)
    red, frozen, colour = clip(), clip(), clip()
    squares = clip()[:, ::16, ::16].repeat_interleave(16, 1).repeat_interleave(16, 2)[:, :16, :24]
    red[..., 1:] //= 2
    frozen[5:] = frozen[4]
    colour[6:] = torch.tensor([200, 30, 30], dtype=torch.uint8)
    found = {name: dict(zip(SIGNS, signs_of(each).tolist(), strict=True)) for name, each in
             {"red": red, "frozen": frozen, "colour": colour, "squares": squares}.items()}  # fmt: skip
    assert found["red"]["saturation"] == pytest.approx(0.5, abs=0.01)
    assert found["frozen"]["frozen"] == 0.5
    assert found["frozen"]["change"] < plain["change"] * 0.6
    assert found["colour"]["single_colour"] == pytest.approx(1 / 3)
    assert found["squares"]["mosaic"] > 10
    assert found["red"]["frozen"] == found["red"]["single_colour"] == 0


def test_student_and_teacher_stand_side_by_side() -> None:
    still = clip()[:1].repeat(9, 1, 1, 1)
    found = compared([clip(), clip()], [still, clip()])
    assert (found["frozen"], found["frozen_teacher"]) == (0.5, 0)
    assert set(found) == {*SIGNS, *(f"{sign}_teacher" for sign in SIGNS)}
