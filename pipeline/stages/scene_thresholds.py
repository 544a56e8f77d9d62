"""Thresholds of scene detection that are no settings: one place to tune them together on films with known changes.

Gray levels are 0 to 255. Tiny pictures have 32x18 pixels (`same_scene.py`), small ones are `detect_width` wide. The
second look at finished clips has its own thresholds (`two_groups.py`). `make bench-scenes` measures a change.
"""

from __future__ import annotations

SAME_DRAWING = 0.5
"""Largest mean change of a held drawing by the encoder, gray levels."""
LONGEST_HOLD = 6
"""Frames. The detector of hard cuts gets a drawing that is held longer again, which bounds its delay."""
CHANGED_PIXEL = 10
"""A pixel has changed at a hard cut if any of its channels differs by more levels than this."""

SHORTEST_WINDOW = 6
"""Frames. A shorter transition is a hard cut to the eye and to the detector of hard cuts."""
WINDOW_ROOM = 1.4
"""Ratio of the longest window to the longest transition: room for clean frames at both ends."""
WINDOW_GROWTH = 1.5
"""Ratio of neighbouring window lengths. Small, because a window must hold the whole transition and little else."""
STEPS_PER_WINDOW = 20
"""Steps between the evenly spaced frames that are examined in a long window."""
CLEAN = 0.1
"""A frame with less than this share of the other scene is clean: movement alone gives as much."""
SEEN = 0.06
"""Share of the other scene from which a frame is kept out of clips."""
LARGEST_STEP = 0.45
"""Largest growth of the share between two frames examined: drawings on threes mix in jumps, a hard cut jumps by 1."""
LARGEST_RETURN = 0.1
"""Largest decrease of the share between two frames examined: characters move during a dissolve."""
LONGEST_RISE, STEEP = 0.7, 3.6
"""Rise from which nothing is a transition, and how fast the limit on the misfit grows with a shorter rise."""
LONGEST_RISE_OF_ALL = 0.93
"""`LONGEST_RISE` of the longest windows, since no longer ones would show a long transition with a shorter rise."""
UNDECIDED = 2.0
"""Ratio of the largest share of undecided pixels in a wipe to the largest misfit of a dissolve: borders are blurred."""
MOST_RETURNED, MOST_RETURNED_OF_BLANK = 0.15, 0.5
"""Largest share of the pixels that show the old scene again after the new one during a wipe. From or to a blank picture
it is larger, since no camera moves there, and figures that leap about in the other scene match it by chance."""
MOST_UNLIKE = 0.2
"""Largest misfit of a frame before or after the mixed ones: it shows A or B, not a third scene."""
WHOLE, WHOLE_ALIKE, WHOLE_MISFIT = 0.5, 0.4, 0.6
"""Least share of the pixels changed by a transition of the whole picture. If both scenes are more alike than the second
value, only the light (0.9 or more) or the camera changed. The third is the share of the largest misfit allowed."""
FIGURE_ALIKE, FIGURE_MISFIT = 0.6, 0.3
"""`WHOLE_ALIKE` and `WHOLE_MISFIT` for figures that dissolve before a place that stays."""

FLASH_LEVELS = 8
"""Least mean difference of a flash from the picture before it, gray levels."""
DOUBT = 2.0
"""Ratio of the largest misfit of a gradual change in doubt to `dissolve_misfit`."""
MOST_FOUND = 0.06
"""Largest share of the picture before a change in doubt that is found again after it."""
LONGEST_WAY = 0.125
"""Longest way of most pixels during a change in doubt, in picture widths: longer pans leave the old picture."""
REACH = 0.75
"""Reach of a dissolve on either side of a step, over `transition_seconds`."""
LOPSIDED = 0.2
"""Largest distance of the middle of a lopsided change from the nearer of its ends, as a share of its length."""
BESIDE_SECONDS = 0.25
"""Distance between a picture and the one farther away that shows one scene alone."""
LEAST_MIX = 0.07
"""Least share of the other scene in a mixed picture. On either side of a step of a dissolve it was 0.09 or more; at
real cuts the smaller of the two was 0.04 or less in a composed film, and 0.01 in Big Buck Bunny."""
LARGEST_BESIDE = 2.0
"""Largest ratio of a step to the largest change next to it. At the steps of dissolves it was 1.5 or less with few
exceptions, at a cut between scenes that move on every frame 6."""

LEAST_CHANGED = 0.08
"""Least share of the pixels that a change of scene changes, even one of figures. A line of text changes fewer."""
BRIGHT, DARKEST = 110.0, 55.0
"""Mean gray of a picture from which the least change applies in full, and below which half of it does."""
BLANK_DEVIATION = 4.0
"""Standard deviation of gray values below which a picture is blank."""
LAYOUT = 5
"""Pixels of a tiny picture. Structures larger than this are layout, which other places may share, and not detail."""
SAME_SHARE, SAME_LEVELS = 0.3, 15
"""A picture has returned after a flash if it differs by less than this share of the flash and by fewer than this many
gray levels. At cuts the mean change was 23 levels or more; by movement in a quarter of a second, 15 in one case of
ten."""
LIT_LEVELS, SAME_PLACE = 8, 0.95
"""Gray levels by which light changes a pixel, and the least likeness of two pictures of one place in different
light."""
LETTER_LEVELS, LINE = 10, 5
"""Gray levels by which letters differ from their background, and the side in pixels of a square wider than their
lines."""
INNER_SHARE, UNIFORM_SHARE = 0.12, 0.6
"""A change is a title if less of it than this share remains after erosion by such a square. Of a change to one colour
more may remain, as of bold letters: figures are not of one colour."""
LIKE_LEVELS = 14
"""Largest difference of like colours in any channel, gray levels."""
RETURN_PIXELS = 1.5
"""Largest distance of a pixel from the place to which the flow there and back leads it."""
EDGE_LEVELS = 40
"""Least gradient at an edge, as Sobel's filter gives it."""
