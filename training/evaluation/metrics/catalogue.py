"""Catalogue of the metrics that are measured on clips, in the order of the report."""

from __future__ import annotations

from training.evaluation.measures import Metric

PAPER = (
    Metric(
        name="clip_i",
        title="CLIP-I",
        meaning="CLIP similarity of the frames to the reference pictures of the characters that the panel names",
    ),
    Metric(
        name="dreamsim",
        title="DreamSim",
        meaning="DreamSim similarity (1 - distance) to the reference pictures of the characters that the panel names",
    ),
    Metric(name="clip_t", title="CLIP-T", meaning="CLIP similarity of the frames to the instruction"),
    Metric(name="clip_t_e", title="CLIP-T^E", meaning="CLIP similarity of the frames to the environment's words"),
    Metric(
        name="acc_f",
        title="ACC-F",
        meaning="share of turns whose measured motion level is the one asked for",
        is_share=True,
    ),
    Metric(
        name="mae_f",
        title="MAE-F",
        meaning="mean difference of the measured motion level from the one asked for",
        better="lower",
    ),
    Metric(
        name="acc_s",
        title="ACC-S",
        meaning="share of the changes of stamina, social and entertainment that are right",
        is_share=True,
    ),
    Metric(name="mae_s", title="MAE-S", meaning="mean difference of those changes from the right ones", better="lower"),
    Metric(name="turn_seconds", title="s/turn", meaning="seconds a turn", better="lower"),
)
"""Metrics of the paper's table."""

RETURNS = {"2": (2, 2), "3_to_5": (3, 5), "6_on": (6, 10**6)}
"""Spans of k, turns since the last visit to a place, by the end of their metric's name."""

BEYOND = (
    Metric(
        name="first_frame_seconds",
        title="s to first frame",
        meaning="seconds from the instruction to the first frame; a kept scene of a baseline's router costs none",
        better="lower",
    ),
    Metric(name="memory_gb", title="peak GB", meaning="peak memory of the device in 10^9 bytes", better="lower"),
    Metric(name="clip_t_action", title="CLIP-T action", meaning="CLIP similarity of the frames to the motion's words"),
    Metric(
        name="clip_i_truth",
        title="CLIP-I to truth",
        meaning="mean CLIP similarity of each frame to the nearest frame of the real clip",
    ),
    Metric(
        name="dreamsim_truth",
        title="DreamSim to truth",
        meaning="mean DreamSim similarity of each frame to the nearest frame of the real clip",
    ),
    Metric(
        name="appearance_truth",
        title="appearance to truth",
        meaning="mean similarity of colours and edges of each frame to the nearest frame of the real clip",
    ),
    Metric(
        name="identity",
        title="identity",
        meaning="similarity to the named characters' reference pictures, less that to the most similar other character",
    ),
    Metric(
        name="cast_shown",
        title="cast shown",
        meaning="share of the k named characters that are among the k of the cast most similar to a frame",
        is_share=True,
    ),
    Metric(
        name="style",
        title="style",
        meaning="similarity of colours and edges to the nearest of the game's first three turns, from turn 4 on",
    ),
    Metric(
        name="place_kept",
        title="place kept",
        meaning="share of returns to a place where the turn is more similar to the place's last turn than to any "
        "turn elsewhere",
        is_share=True,
    ),
    *(
        Metric(
            name=f"place_kept_{end}",
            title=f"place kept, k {end.replace('_', ' ')}",
            meaning=f"place kept, for returns {end.replace('_', ' ')} turns after the last visit",
            is_share=True,
        )
        for end in RETURNS
    ),
    Metric(
        name="place_memory",
        title="place memory",
        meaning="on return to a place, similarity to the place's last turn less the mean of that to turns elsewhere",
    ),
    Metric(
        name="copies",
        title="copies",
        meaning="share of turns with a frame that is a reference picture, but for scale and coding",
        better="lower",
    ),
)
"""Metrics beyond the paper's table."""

METRICS = (*PAPER, *BEYOND)
