"""Short film of cases that are difficult for scene detectors, with known transitions.

Drawings held on twos and threes, a fast pan, a zoom, white flashes, cuts between scenes that look alike, big changes of
drawing inside a scene, a dissolve, a fade through black. The art is from two Debian packages (painted backgrounds,
characters as RGBA sprites, Expat licence), fetched by name; none of it is in the repository.
"""

from __future__ import annotations

from examples.world.acting import fight, stand, talk, walk
from examples.world.motions import pan, zoom
from examples.world.paintings import BLACK, WORLD_HEIGHT, WORLD_WIDTH, Painting
from examples.world.scene import Scene


def short_film() -> tuple[Scene, ...]:
    """Return the scenes, half a minute in all."""
    lecture_hall, club = Painting("bg lecturehall"), Painting("bg club")
    panorama = (300, 0, 300 + WORLD_WIDTH, WORLD_HEIGHT)
    return (
        Scene("lecture", 72, lecture_hall, talk(("sylvie", 560)), movement="talks"),
        Scene("answer", 48, lecture_hall, talk(("lucy", 760)), movement="talks"),
        Scene("walk", 72, Painting("bg uni"), walk("eileen", 200, 24), 2, "walks"),
        Scene("pan", 48, Painting("bg panorama"), frames_per_drawing=1, camera="pan", look=pan(panorama, 64)),
        Scene("zoom", 48, club, stand("sylvie in blue", 700), 1, camera="zoom",
              look=zoom(club.whole, 700, 200, 1, 2, 48)),
        Scene("flash", 60, Painting("bg whitehouse"), talk(("lucy", 640)), movement="talks",
              flashes=((14, 1), (30, 2), (44, 3))),
        Scene("meadow", 72, Painting("bg meadow"), talk(("sylvie in blue", 400)), movement="talks",
              opened_by="dissolve", opening_frames=12),
        Scene("fight", 72, Painting("bg club", night=True), fight("eileen", "lucy"), 2, "fights"),
        Scene("evening", 60, Painting("bg uni", night=True), stand("sylvie", 640)),
        Scene("black", 26, Painting(BLACK), frames_per_drawing=1, opened_by="fade", opening_frames=16),
        Scene("morning", 76, lecture_hall, talk(("eileen", 420), ("sylvie", 820)), movement="talks",
              opened_by="fade", opening_frames=16),
        Scene("close-up", 48, lecture_hall, talk(("sylvie", 820)), movement="talks",
              look=zoom(lecture_hall.whole, 820, 200, 2, 2, 48)),
    )  # fmt: skip
