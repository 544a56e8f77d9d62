"""Cast of puppets: the looks of four characters, of which no two share hair, colours or clothes."""

from __future__ import annotations

from examples.world.puppets import Character

CAST = {
    "Mika": Character(
        hair="twin tails", hair_colour=(255, 128, 176), eyes=(214, 50, 110), skin=(255, 224, 204),
        top=(250, 250, 252), bottom=(44, 64, 140), accent=(226, 44, 62), skirt=True,
    ),
    "Haru": Character(
        hair="spikes", hair_colour=(52, 120, 232), eyes=(40, 120, 220), skin=(252, 214, 186),
        top=(244, 128, 36), bottom=(70, 76, 96), accent=(250, 226, 120), skirt=False,
    ),
    "Yuki": Character(
        hair="long", hair_colour=(236, 236, 246), eyes=(130, 70, 200), skin=(255, 232, 218),
        top=(146, 74, 190), bottom=(146, 74, 190), accent=(250, 190, 220), skirt=True,
    ),
    "Kuro": Character(
        hair="cat ears", hair_colour=(46, 42, 60), eyes=(60, 180, 70), skin=(240, 196, 160),
        top=(40, 150, 92), bottom=(96, 66, 48), accent=(236, 70, 60), skirt=False,
    ),
}  # fmt: skip
"""Looks by the name of the character."""
