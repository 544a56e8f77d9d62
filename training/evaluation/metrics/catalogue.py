"""Catalogue of the metrics that are measured on clips, in the order of the report."""

from __future__ import annotations

from training.evaluation.measures import Better, Metric


def _metric(name: str, title: str, meaning: str, better: Better = "higher", *, is_share: bool = False) -> Metric:
    return Metric(name=name, title=title, meaning=meaning, better=better, is_share=is_share)


PAPER = (
    _metric(
        "clip_i",
        "CLIP-I",
        "CLIP similarity of the frames to the reference pictures of the characters that the panel names",
    ),
    _metric(
        "dreamsim",
        "DreamSim",
        "DreamSim similarity (1 - distance) to the reference pictures of the characters that the panel names",
    ),
    _metric("clip_t", "CLIP-T", "CLIP similarity of the frames to the instruction"),
    _metric("clip_t_e", "CLIP-T^E", "CLIP similarity of the frames to the environment's words"),
    _metric("acc_f", "ACC-F", "share of turns whose measured motion level is the one asked for", is_share=True),
    _metric("mae_f", "MAE-F", "mean difference of the measured motion level from the one asked for", "lower"),
    _metric(
        "acc_s", "ACC-S", "share of the changes of stamina, social and entertainment that are right", is_share=True
    ),
    _metric("mae_s", "MAE-S", "mean difference of those changes from the right ones", "lower"),
    _metric("turn_seconds", "s/turn", "seconds a turn", "lower"),
)
"""Metrics of the paper's table."""

RETURNS = {"2": (2, 2), "3_to_5": (3, 5), "6_on": (6, 10**6)}
"""Spans of k, turns since the last visit to a place, by the end of their metric's name."""

BEYOND = (
    _metric("as_asked", "as asked", "share of turns that show who, where and what was asked for", is_share=True),
    _metric("shows_who", "shows who", "share of turns that show the characters asked for and no others", is_share=True),
    _metric("shows_where", "shows where", "share of turns that show the place asked for", is_share=True),
    _metric("shows_what", "shows what", "share of turns that show the motion asked for", is_share=True),
    _metric(
        "first_frame_seconds",
        "s to first frame",
        "seconds from the instruction to the first frame; a kept scene of a baseline's router costs none",
        "lower",
    ),
    _metric("memory_gb", "peak GB", "peak memory of the device in 10^9 bytes", "lower"),
    _metric("clip_t_action", "CLIP-T action", "CLIP similarity of the frames to the motion's words"),
    _metric(
        "clip_i_truth", "CLIP-I to truth", "mean CLIP similarity of each frame to the nearest frame of the real clip"
    ),
    _metric(
        "dreamsim_truth",
        "DreamSim to truth",
        "mean DreamSim similarity of each frame to the nearest frame of the real clip",
    ),
    _metric(
        "appearance_truth",
        "appearance to truth",
        "mean similarity of colours and edges of each frame to the nearest frame of the real clip",
    ),
    _metric(
        "identity",
        "identity",
        "similarity to the named characters' reference pictures, less that to the most similar other character",
    ),
    _metric(
        "cast_shown",
        "cast shown",
        "share of the k named characters that are among the k of the cast most similar to a frame",
        is_share=True,
    ),
    _metric(
        "style",
        "style",
        "similarity of colours and edges to the nearest of the game's first three turns, from turn 4 on",
    ),
    _metric(
        "place_kept",
        "place kept",
        "share of returns to a place where the turn is more similar to the place's last turn than to any "
        "turn elsewhere",
        is_share=True,
    ),
    *(
        _metric(
            f"place_kept_{end}",
            f"place kept, k {end.replace('_', ' ')}",
            f"place kept, for returns {end.replace('_', ' ')} turns after the last visit",
            is_share=True,
        )
        for end in RETURNS
    ),
    _metric(
        "place_memory",
        "place memory",
        "on return to a place, similarity to the place's last turn less the mean of that to turns elsewhere",
    ),
    _metric(
        "copies", "copies", "share of turns with a frame that is a reference picture, but for scale and coding", "lower"
    ),
)
"""Metrics beyond the paper's table."""

METRICS = (*PAPER, *BEYOND)
