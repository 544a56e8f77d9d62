"""Scenes of the baselines, by a language model, kept on disk: a game that goes on asks for none twice.

EVALUATION/scenes/<hash of model, prompt, story and instruction>.json
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pipeline.core.atomic import replacing
from pipeline.core.errors import UserError, disk_errors
from pipeline.core.ingredients import fingerprint
from pipeline.core.records import faults_of
from prompts.template import load_prompt
from training.baselines.router import LanguageRouter, SceneDescription, StoryTurn

_SCENE = TypeAdapter(SceneDescription)


class KeptScenes:
    """Router that asks a language model for what its folder lacks."""

    def __init__(self, router: LanguageRouter, folder: Path) -> None:
        self._router, self._folder = router, folder

    def route(self, story: Sequence[StoryTurn], instruction: str) -> SceneDescription:
        """Return the scene of the turn after `story`.

        Raises:
            UserError: the language model fails, or a kept scene is damaged.
        """
        asked = {"story": [_asked(turn) for turn in story], "instruction": instruction}
        model = {"model": self._router.endpoint.model, "prompt": load_prompt("scene").identity}
        path = self._folder / f"{fingerprint({**model, **asked})}.json"
        if not path.exists():
            scene = self._router.route(story, instruction)
            with replacing(path) as temporary, disk_errors(path):
                temporary.write_bytes(_SCENE.dump_json(scene))
        try:
            with disk_errors(path):
                return _SCENE.validate_json(path.read_bytes())
        except ValidationError as error:
            raise UserError(f"{path}: damaged ({faults_of(error)}); delete it, and it is asked for again") from error


def _asked(turn: StoryTurn) -> dict[str, object]:
    """Return what the language model reads of an earlier turn; the time that its scene took is no part of it."""
    scene = {"description": turn.scene.description, "state": asdict(turn.scene.state)}
    return {"instruction": turn.instruction, "scene": scene}
