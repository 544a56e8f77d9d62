"""Estimate of a build before it starts: clips, hours, gigabytes and caption requests, from probes and measured rates.

    estimate(plan).cpu_hours

The rates were measured on Big Buck Bunny (720p, 24 fps; `make bench`) on a two-core machine. Expect a factor of 1.5
either way, because films differ in the length of their scenes, and machines in speed.

s is the length of the film in seconds, p its picture in megapixels, r its rate, and q the ratio of a clip's pixels to
the pixels of a clip with default settings:

    clips n   = CLIPS_A_SECOND * s * 2 / (seconds between clip starts)
    CPU       = OPENING + s * (CUT_BASE + CUT_MEGAPIXEL * p) * r / 24
              + n q * (flow + looks + text + publishing) + n * sound    seconds
    disk      = 2 n * (q * CLIP_BYTES + sound)      the clip, and its copy in a shard
    requests  = questions * n * KEPT_SHARE          in a measured film: questions * clips without stored replies
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from pipeline.captions.stage import WriteCaptions
from pipeline.core.config import Config
from pipeline.core.errors import UserError
from pipeline.core.records import Clip, Film
from pipeline.core.stage import Stage
from pipeline.core.store import FilmFolder
from pipeline.plan.build_plan import Plan
from pipeline.stages.selection import Screen

CLIPS_A_SECOND = 0.375
"""Clips of 2 seconds cut from a second of film; short scenes and the rests of longer scenes give none."""
KEPT_SHARE = 0.9
"""Share of the clips that screening keeps, which are captioned."""
OPENING = 0.5
"""CPU seconds before a film's decode: its probe, its borders, child processes."""
CUT_BASE, CUT_MEGAPIXEL = 0.020, 0.085
"""CPU seconds to decode and cut a second of film: base, and more for each megapixel."""
FLOW, LOOKS, TEXT, PUBLISHING = 0.08, 0.035, 0.07, 0.01
"""CPU seconds a clip of 720x480: OpenCV DIS, looks without text, text detection, shards and pages."""
SOUND = 0.05
"""CPU seconds for each second of a clip's sound: AAC takes most of them."""
CLIP_BYTES, SOUND_BYTES = 385_000, 16_500
"""Bytes of a clip of 720x480 without its sound, and of a second of its sound."""
CLIP_PIXELS = 720 * 480 * 16
START_SECONDS = 3.0
"""CPU seconds of the command besides its films: imports, the text detector."""


@dataclass(frozen=True)
class Estimate:
    """Work left of a build."""

    films: int
    """Films with a stage to run."""
    film_hours: float
    clips: int
    cpu_hours: float
    """Without captions by a server and optical flow by a network, which depend on a GPU."""
    gigabytes: float
    requests: int
    """Requests to the caption service, without repeats after an unusable reply."""


def estimate(plan: Plan) -> Estimate:
    """Estimate the work of a plan; for finished stages, the actual results count."""
    seconds = clips = cpu_seconds = requests = 0.0
    for film_id, stages in plan.unfinished.items():
        folder, left = plan.dataset.folder(film_id), {stage.name for stage in stages}
        used = folder.film.used_seconds(plan.config.film.end_seconds)
        made = _clips(folder, used, plan.config, is_cut="cut" not in left)
        seconds, clips = seconds + used, clips + made
        cpu_seconds += _cpu_seconds(folder.film, used, made, left, plan.config)
        if "captions" in left and plan.config.captions.captioner == "server":
            requests += _asked(folder, stages, made) * (2 if plan.request.cast else 1)
    sound = SOUND_BYTES * _sound_seconds(plan.config)
    gigabytes = 2 * clips * (CLIP_BYTES * _clip_size(plan.config) + sound) / 1e9
    start = START_SECONDS if plan.unfinished else 0
    return Estimate(
        films=len(plan.unfinished),
        film_hours=seconds / 3600,
        clips=round(clips),
        cpu_hours=(cpu_seconds + start) / 3600,
        gigabytes=gigabytes,
        requests=round(requests),
    )


def _clips(folder: FilmFolder, seconds: float, config: Config, *, is_cut: bool) -> float:
    return len(folder.read("clips", Clip)) if is_cut else CLIPS_A_SECOND * seconds * 2 / config.clips.seconds


def _clip_size(config: Config) -> float:
    """Ratio of a clip's pixels to the pixels of a clip with default settings."""
    return config.clips.width * config.clips.height * config.clips.frames / CLIP_PIXELS


def _sound_seconds(config: Config) -> float:
    return config.sound.keep * config.clips.frames / float(config.clips.fps)


def _cpu_seconds(film: Film, seconds: float, clips: float, left: set[str], config: Config) -> float:
    per_clip = {"motion": FLOW if config.motion.model == "dis" else 0.0, "looks": LOOKS + TEXT * config.looks.text}
    cost = PUBLISHING + sum(each for stage, each in per_clip.items() if stage in left)
    decode = CUT_BASE + CUT_MEGAPIXEL * film.width * film.height / 1e6
    cut = OPENING + seconds * decode * float(film.fps) / 24 if "cut" in left else 0.0
    sound = SOUND * _sound_seconds(config) if "sound" in left else 0.0
    return cut + clips * (cost * _clip_size(config) + sound)


def _asked(folder: FilmFolder, stages: Sequence[Stage], clips: float) -> float:
    """Number of clips to query: the clips without stored replies, or a share of all until the film is measured."""
    with suppress(UserError, OSError):  # a damaged table or reply: the film's run makes it again, or says why not
        match stages:
            case [WriteCaptions() as captions]:
                return len(captions.pending(folder, current=False).ids)
            case [Screen() as screen, WriteCaptions() as captions]:
                return len(captions.pending(folder, current=False, screened=screen.verdicts(folder)).ids)
    return clips * KEPT_SHARE
