"""Baseline agents GC, GFC and GSC: the game's `play(instructions)`, with a router instead of the game model.

    for turn in GC.load("baseline").play(["Qiqi runs over the waves", "Qiqi falls asleep"]):
        print(turn.values, turn.frames_THWC.shape)

The router maps an instruction to a scene description and to the state of the turn. The description is the prompt of
text-to-video and of pictures. Image-to-video gets the instruction itself, as in the paper's supplement. `GC` and `GFC`
generate turn by turn. `GSC` generates the pictures of a whole story at once, so it needs all instructions in one call
of `play`.

Shapes: T frames, H and W pixels, C colour channels (RGB), L shot tokens of width D (the baselines have none).
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
from models.frames import RGB, decode_latents
from models.turns import Turn, Values, turn_seed
from pipeline.core.errors import UserError
from training.baselines.config import BaselineConfig, BaselineKind, PictureSettings, StorySettings
from training.baselines.consistent import PictureGroup, drawn_together, windows
from training.baselines.folder import BaselineFolder
from training.baselines.router import PlainRouter, Router, StoryTurn


@dataclass(frozen=True, eq=False)
class DrawnShot:
    """Frames generated for a scene, and the time taken by each part."""

    frames_THWC: NDArray[np.uint8]
    seconds: dict[str, float]


class Baseline(ABC):
    """Agent that plays a game with a baseline.

    Args:
        pipelines: pipelines by part, on their device.
        router: map from instructions to scenes.
        seed: seed of the game; the same seed, instructions and scenes give the same game.
    """

    kind: ClassVar[BaselineKind]
    whole_story: ClassVar[bool] = False
    """True if all turns are generated together, so that a game cannot be resumed."""

    def __init__(self, config: BaselineConfig, pipelines: dict[str, Any], router: Router, seed: int = 0) -> None:
        self.config, self.pipelines, self.router, self.seed = config, pipelines, router, seed
        self.values = Values()
        self.story: tuple[StoryTurn, ...] = ()
        """Turns so far, as input of the router."""

    @classmethod
    def open(cls, folder: Path | str) -> BaselineFolder:
        """Read the configuration of a baseline, without its networks.

        Raises:
            UserError: the folder holds no baseline, or one of another kind.
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
        """Start a new game with the pipelines of a baseline.

        Args:
            router: map from instructions to scenes; by default the instruction itself is the description.
            device: `cpu`, `cuda`, ...; by default the first GPU, if there is one.
            offload: keep only one network at a time on the GPU, for a small GPU.

        Raises:
            UserError: the folder holds no baseline of this kind, a pipeline cannot be loaded, or there is no such
                device.
        """
        baseline = cls.open(folder)
        where = device_of(device)
        pipelines: dict[str, Any] = {"video": baseline.video(where)}
        if baseline.config.picture:
            pipelines["picture"] = baseline.picture(where)
        for pipeline in pipelines.values():
            if offload and where.type != "cpu":
                pipeline.enable_model_cpu_offload(device=where)
            else:
                pipeline.to(where)
        return cls(baseline.config, pipelines, router or PlainRouter(), seed)

    def new_game(self, seed: int) -> Self:
        """Return a new game with the same networks and router."""
        return type(self)(self.config, self.pipelines, self.router, seed)

    def play(self, instructions: str | Sequence[str]) -> Iterator[Turn]:
        """Play one instruction, or several in sequence.

        Lazy: a shot is generated when the iterator reaches it. A failed turn leaves the game unchanged.

        Raises:
            UserError: an instruction is empty, or the router's language model fails.
        """
        texts = [instructions] if isinstance(instructions, str) else list(instructions)
        for together in self._portions(texts):
            turns = self._routed(together)
            numbers = range(len(self.story) + 1, len(self.story) + 1 + len(turns))
            shots = self._draw(turns, [turn_seed(self.seed, number) for number in numbers])
            for turn, shot in zip(turns, shots, strict=True):
                self._follow(turn)
                yield self._turn(turn, DrawnShot(shot.frames_THWC, {"router": turn.scene.seconds, **shot.seconds}))

    def skip(self, instructions: Sequence[str]) -> None:
        """Route instructions and add them to the story, without generating shots, so that later turns can follow."""
        for turn in self._routed(instructions):
            self._follow(turn)

    def _follow(self, turn: StoryTurn) -> None:
        """Append a turn to the story and update the values."""
        self.story = (*self.story, turn)
        self.values = self.values.after(turn.scene.state)

    def _portions(self, instructions: list[str]) -> Iterator[list[str]]:
        """Yield the groups of instructions that are routed and generated together."""
        for instruction in instructions:
            yield [instruction]

    def _routed(self, instructions: Sequence[str]) -> list[StoryTurn]:
        turns: list[StoryTurn] = []
        for instruction in instructions:
            turns.append(StoryTurn(instruction, self.router.route((*self.story, *turns), instruction)))
        return turns

    def _turn(self, turn: StoryTurn, shot: DrawnShot) -> Turn:
        state = turn.scene.state
        return Turn(
            number=len(self.story),
            instruction=turn.instruction,
            state=state,
            scope_px=self.config.level_values[state.level - 1],
            values=self.values,
            frames_THWC=shot.frames_THWC,
            shot_tokens_LD=torch.empty(0, 0),
            seconds=shot.seconds,
        )

    @abstractmethod
    def _draw(self, turns: Sequence[StoryTurn], seeds: Sequence[int]) -> Iterator[DrawnShot]:
        """Yield the shots of consecutive turns."""

    def _shot(self, prompt: str, seed: int, picture: Image | None = None) -> NDArray[np.uint8]:
        """Generate frames from a prompt, and from a first frame if the pipeline is image-to-video."""
        video, pipeline = self.config.video, self.pipelines["video"]
        patches = pipeline.vae.config.in_channels > RGB  # such an autoencoder needs our decoding
        drawn = pipeline(
            prompt=prompt,
            height=video.height,
            width=video.width,
            num_frames=video.frames,
            num_inference_steps=video.steps,
            guidance_scale=video.guidance,
            max_sequence_length=pipeline.transformer.config.max_text_seq_length,
            generator=torch.Generator().manual_seed(seed),
            output_type="latent" if patches else "np",
            **({} if picture is None else {"image": picture}),
        ).frames
        if patches:
            decoded: NDArray[np.uint8] = decode_latents(pipeline.vae, drawn)[0, : video.shown_frames].cpu().numpy()
            return decoded
        shot_THWC: NDArray[np.uint8] = (drawn[0, : video.shown_frames] * 255).round().clip(0, 255).astype(np.uint8)
        return shot_THWC


class GC(Baseline):
    """Baseline GC: CogVideoX 2B with adapters, text-to-video."""

    kind = "gc"

    def _draw(self, turns: Sequence[StoryTurn], seeds: Sequence[int]) -> Iterator[DrawnShot]:
        for turn, seed in zip(turns, seeds, strict=True):
            started = time.perf_counter()
            frames_THWC = self._shot(turn.scene.description, seed)
            yield DrawnShot(frames_THWC, {"video": time.perf_counter() - started})


class GFC(Baseline):
    """Baseline GFC: FLUX with adapters for the first frame, then CogVideoX 5B image-to-video."""

    kind = "gfc"

    def _draw(self, turns: Sequence[StoryTurn], seeds: Sequence[int]) -> Iterator[DrawnShot]:
        settings = self.config.picture
        assert settings is not None
        for turn, seed in zip(turns, seeds, strict=True):
            started = time.perf_counter()
            picture = self.pipelines["picture"](
                prompt=turn.scene.description,
                height=settings.height,
                width=settings.width,
                num_inference_steps=settings.steps,
                guidance_scale=settings.guidance,
                max_sequence_length=settings.text_tokens,
                generator=torch.Generator().manual_seed(seed),
            ).images[0]
            drawn = time.perf_counter()
            frames_THWC = self._shot(turn.instruction, seed, picture)
            yield DrawnShot(frames_THWC, {"picture": drawn - started, "video": time.perf_counter() - drawn})


class GSC(Baseline):
    """Baseline GSC: SDXL for consistent first frames of a whole story, then CogVideoX 5B image-to-video.

    It draws the pictures of earlier turns again, because the new pictures must be consistent with them.
    """

    kind = "gsc"
    whole_story = True

    def _portions(self, instructions: list[str]) -> Iterator[list[str]]:
        if instructions:
            yield instructions

    def _draw(self, turns: Sequence[StoryTurn], seeds: Sequence[int]) -> Iterator[DrawnShot]:
        picture, story = self.config.picture, self.config.story
        assert picture is not None
        assert story is not None
        started = time.perf_counter()
        done = len(self.story)
        descriptions = [turn.scene.description for turn in (*self.story, *turns)]
        all_seeds = [turn_seed(self.seed, number) for number in range(1, len(descriptions) + 1)]
        pictures = draw_story(self.pipelines["picture"], descriptions, all_seeds, picture, story)[done:]
        share = (time.perf_counter() - started) / len(descriptions)  # the pictures of all turns are generated together
        for turn, seed, image in zip(turns, seeds, pictures, strict=True):
            started = time.perf_counter()
            frames_THWC = self._shot(turn.instruction, seed, image)
            yield DrawnShot(frames_THWC, {"picture": share, "video": time.perf_counter() - started})


def draw_story(
    pipeline: Any, descriptions: Sequence[str], seeds: Sequence[int], picture: PictureSettings, story: StorySettings
) -> list[Image]:
    """Generate the pictures of a story, in order, with consistent self-attention.

    Args:
        pipeline: an SDXL pipeline.
        seeds: noise seeds of the pictures; the first is also the seed of the sampled tokens.
    """
    drawn: dict[int, Image] = {}
    groups = windows(len(descriptions), story.together, story.anchors)
    for pictures in groups:
        window = PictureGroup(
            pictures,
            anchors=story.anchors if len(groups) > 1 else 0,
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
    """Start a new game with a baseline of any kind, with the options of `Baseline.load`."""
    return AGENTS[BaselineFolder.open(folder).config.kind].load(folder, **options)
