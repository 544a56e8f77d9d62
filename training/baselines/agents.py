"""The baselines at play: the game's `play(instructions)`, with a router where the game has its game model.

    for turn in GC.load("baseline").play(["Qiqi runs over the waves", "Qiqi falls asleep"]):
        print(turn.values, turn.frames_THWC.shape)

The router turns an instruction into the description that is drawn and into the state of the turn. `GC` and `GFC` draw
turn by turn. `GSC` draws the pictures of a whole story at once, so it needs all instructions in one call of `play`.

Shapes: T frames, H and W pixels, C the colours red, green, blue; L shot tokens of width D, which no baseline has.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image

from models.engine import device_of
from models.turns import Turn, Values, turn_seed
from pipeline.core.errors import UserError
from training.baselines.config import BaselineConfig, BaselineKind, PictureSettings, StorySettings
from training.baselines.consistent import PictureGroup, drawn_together, windows
from training.baselines.folder import BaselineFolder
from training.baselines.router import PlainRouter, Router, SceneDescription, ToldTurn


@dataclass(frozen=True, eq=False)
class DrawnShot:
    """Frames drawn for a scene."""

    frames_THWC: NDArray[np.uint8]
    seconds: dict[str, float]


class Baseline(ABC):
    """A game under way, played by a baseline.

    Args:
        config: its shape.
        pipelines: by part, on their device.
        router: what instructions become.
        seed: the same seed, instructions and scenes give the same game.
    """

    kind: ClassVar[BaselineKind]
    whole_story: ClassVar[bool] = False
    """True if all instructions are drawn together, so that a game cannot go on after a stop."""

    def __init__(self, config: BaselineConfig, pipelines: dict[str, Any], router: Router, seed: int = 0) -> None:
        self.config, self.pipelines, self.router, self.seed = config, pipelines, router, seed
        self.values = Values()
        self.story: tuple[ToldTurn, ...] = ()
        """The turns so far, as the router sees them."""

    @classmethod
    def open(cls, folder: Path | str) -> BaselineFolder:
        """Read the configuration of a baseline, without its networks.

        Raises:
            UserError: no baseline there, or one of another kind.
        """
        baseline = BaselineFolder.open(folder)
        if baseline.config.kind != cls.kind:
            raise UserError(f"{folder} is a baseline of kind {baseline.config.kind}, not {cls.kind}")
        return baseline

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        router: Router | None = None,
        seed: int = 0,
        device: str | None = None,
        offload: bool = False,
    ) -> Self:
        """A new game with the pipelines of a baseline.

        Args:
            folder: from `new_baseline` or a training.
            router: what instructions become; unset: they are drawn as they are.
            seed: of the game.
            device: `cpu`, `cuda`, ...; unset: the first GPU, if there is one.
            offload: for a small GPU: one network on it at a time.

        Raises:
            UserError: no such baseline there, it is of another kind, a pipeline cannot be loaded, or there is no such
                device.
        """
        baseline = cls.open(folder)
        place = device_of(device)
        pipelines: dict[str, Any] = {"video": baseline.video(place)}
        if baseline.config.picture:
            pipelines["picture"] = baseline.picture(place)
        for pipeline in pipelines.values():
            if offload and place.type != "cpu":
                pipeline.enable_model_cpu_offload(device=place)
            else:
                pipeline.to(place)
        return cls(baseline.config, pipelines, router or PlainRouter(), seed)

    def play(self, instructions: str | Sequence[str]) -> Iterator[Turn]:
        """Play one instruction, or several in a row.

        Lazy: a shot is drawn when it is asked for. A turn that fails leaves the game as it was before it.

        Raises:
            UserError: an instruction is empty, or the router's language model is of no use.
        """
        texts = [instructions] if isinstance(instructions, str) else list(instructions)
        for together in self._portions(texts):
            told, seconds = self._routed(together)
            numbers = range(len(self.story) + 1, len(self.story) + 1 + len(told))
            shots = self._draw([turn.scene for turn in told], [turn_seed(self.seed, number) for number in numbers])
            for turn, routing, shot in zip(told, seconds, shots, strict=True):
                self._follow(turn)
                yield self._turn(turn, DrawnShot(shot.frames_THWC, {"router": routing, **shot.seconds}))

    def skip(self, instructions: Sequence[str]) -> None:
        """Take instructions as played: they are routed, so that the story goes on after them, but not drawn."""
        for turn in self._routed(instructions)[0]:
            self._follow(turn)

    def _follow(self, turn: ToldTurn) -> None:
        """Move on by a turn."""
        self.story = (*self.story, turn)
        self.values = self.values.after(turn.scene.state)

    def _portions(self, instructions: list[str]) -> Iterator[list[str]]:
        """The instructions that are routed and drawn at once."""
        for instruction in instructions:
            yield [instruction]

    def _routed(self, instructions: Sequence[str]) -> tuple[list[ToldTurn], list[float]]:
        told: list[ToldTurn] = []
        seconds: list[float] = []
        for instruction in instructions:
            started = time.perf_counter()
            told.append(ToldTurn(instruction, self.router.route((*self.story, *told), instruction)))
            seconds.append(time.perf_counter() - started)
        return told, seconds

    def _turn(self, told: ToldTurn, shot: DrawnShot) -> Turn:
        state = told.scene.state
        return Turn(
            number=len(self.story),
            instruction=told.instruction,
            state=state,
            scope_px=self.config.level_values[state.level - 1],
            values=self.values,
            frames_THWC=shot.frames_THWC,
            shot_tokens_LD=torch.empty(0, 0),
            seconds=shot.seconds,
        )

    @abstractmethod
    def _draw(self, scenes: Sequence[SceneDescription], seeds: Sequence[int]) -> Iterator[DrawnShot]:
        """The shots of scenes that follow each other."""

    def _shot(self, scene: SceneDescription, seed: int, picture: Image | None = None) -> NDArray[np.uint8]:
        """Frames from a description, and from a first frame where the pipeline takes one."""
        video, pipeline = self.config.video, self.pipelines["video"]
        frames_BTHWC = pipeline(
            prompt=scene.description,
            height=video.height,
            width=video.width,
            num_frames=video.frames,
            num_inference_steps=video.steps,
            guidance_scale=video.guidance,
            max_sequence_length=pipeline.transformer.config.max_text_seq_length,
            generator=torch.Generator().manual_seed(seed),
            output_type="np",
            **({} if picture is None else {"image": picture}),
        ).frames
        shot_THWC: NDArray[np.uint8] = (frames_BTHWC[0] * 255).round().clip(0, 255).astype(np.uint8)
        return shot_THWC


class GC(Baseline):
    """CogVideoX 2B with adapters, from the text alone."""

    kind = "gc"

    def _draw(self, scenes: Sequence[SceneDescription], seeds: Sequence[int]) -> Iterator[DrawnShot]:
        for scene, seed in zip(scenes, seeds, strict=True):
            started = time.perf_counter()
            frames_THWC = self._shot(scene, seed)
            yield DrawnShot(frames_THWC, {"video": time.perf_counter() - started})


class GFC(Baseline):
    """FLUX with adapters draws the first frame, CogVideoX 5B lets it move."""

    kind = "gfc"

    def _draw(self, scenes: Sequence[SceneDescription], seeds: Sequence[int]) -> Iterator[DrawnShot]:
        settings = self.config.picture
        assert settings is not None
        for scene, seed in zip(scenes, seeds, strict=True):
            started = time.perf_counter()
            picture = self.pipelines["picture"](
                prompt=scene.description,
                height=settings.height,
                width=settings.width,
                num_inference_steps=settings.steps,
                guidance_scale=settings.guidance,
                max_sequence_length=settings.text_tokens,
                generator=torch.Generator().manual_seed(seed),
            ).images[0]
            drawn = time.perf_counter()
            frames_THWC = self._shot(scene, seed, picture)
            yield DrawnShot(frames_THWC, {"picture": drawn - started, "video": time.perf_counter() - drawn})


class GSC(Baseline):
    """SDXL draws the first frames of a whole story, consistent with each other, CogVideoX 5B lets them move."""

    kind = "gsc"
    whole_story = True

    def _portions(self, instructions: list[str]) -> Iterator[list[str]]:
        if instructions:
            yield instructions

    def _draw(self, scenes: Sequence[SceneDescription], seeds: Sequence[int]) -> Iterator[DrawnShot]:
        picture, story = self.config.picture, self.config.story
        assert picture is not None
        assert story is not None
        started = time.perf_counter()
        pictures = draw_story(self.pipelines["picture"], [scene.description for scene in scenes], seeds, picture, story)
        share = (time.perf_counter() - started) / len(scenes)  # of no turn alone
        for scene, seed, image in zip(scenes, seeds, pictures, strict=True):
            started = time.perf_counter()
            frames_THWC = self._shot(scene, seed, image)
            yield DrawnShot(frames_THWC, {"picture": share, "video": time.perf_counter() - started})


def draw_story(
    pipeline: Any, descriptions: Sequence[str], seeds: Sequence[int], picture: PictureSettings, story: StorySettings
) -> list[Image]:
    """The pictures of a story, in order, consistent with each other.

    Args:
        pipeline: an SDXL pipeline.
        descriptions: of the pictures.
        seeds: of each picture's noise; the first one is also that of the sampled tokens.
        picture: how they are drawn.
        story: how they see each other.
    """
    drawn: dict[int, Image] = {}
    shares = windows(len(descriptions), story.together, story.anchors)
    for pictures in shares:
        window = PictureGroup(
            pictures,
            anchors=story.anchors if len(shares) > 1 else 0,
            sampled=story.sampled,
            begin=round(story.begin * picture.steps),
            seed=seeds[0],
        )
        with drawn_together(pipeline.unet, window):
            images = pipeline(
                prompt=[descriptions[number] for number in pictures],
                height=picture.height,
                width=picture.width,
                num_inference_steps=picture.steps,
                guidance_scale=picture.guidance,
                generator=[torch.Generator().manual_seed(seeds[number]) for number in pictures],
                callback_on_step_end=window.after_step,
            ).images
        drawn |= dict(zip(pictures, images, strict=True))
    return [drawn[number] for number in range(len(descriptions))]


AGENTS: dict[BaselineKind, type[Baseline]] = {"gc": GC, "gfc": GFC, "gsc": GSC}


def load_baseline(folder: Path | str, **options: Any) -> Baseline:
    """A new game with whatever baseline lies in a folder; the options are those of `Baseline.load`."""
    return AGENTS[BaselineFolder.open(folder).config.kind].load(folder, **options)
