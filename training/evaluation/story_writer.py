"""Story writer: a language model writes the games of a benchmark, a story of some panels about each character.

The replies are stored in a folder next to the benchmark file. After a stop, or with more games, the command requests
only the missing stories.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipeline.captions.endpoint import Endpoint, user
from pipeline.core.atomic import held, replacing
from pipeline.core.errors import UserError, disk_errors
from pipeline.core.progress import Progress
from prompts.evaluation_replies import EXAMPLE_PANEL, StoryPanel, format_panel, parse_story, story_pattern
from prompts.template import load_prompt
from training.evaluation.benchmark import BenchmarkGame, Panel, write_benchmark
from training.evaluation.inquiries import Answers, Inquiry, ask_all, model_ingredients
from training.evaluation.story_checks import check_story, most_places

THEMES = (
    *("a morning at home", "a journey", "a festival", "work in the garden", "a storm", "a visit to a friend"),
    *("a day at the water", "a chase", "cooking for guests", "a walk in the mountains", "a lazy evening", "a lost pet"),
)
"""Themes of a character's stories, in rotation. Without a theme, a model writes the same story many times."""
_WRITTEN = "written.sha256"
"""File next to the replies with the hash of the benchmark as it was last written."""

Story = Inquiry[tuple[StoryPanel, ...]]


@dataclass(frozen=True)
class WrittenGames:
    """Games of a benchmark, and the stories that stayed unusable."""

    games: tuple[BenchmarkGame, ...]
    refused: dict[str, str]
    """Reason by the name of the game."""
    repaired: int


def write_games(
    out: Path, names: Sequence[str], games: int, panels: int, endpoint: Endpoint, progress: Progress
) -> WrittenGames:
    """Write a benchmark file of stories about characters; stories that stay unusable are left out.

    Args:
        out: path of the file; the folder `.<name>-replies` next to it stores the replies.
        games: stories about each character.

    Raises:
        UserError: the service cannot be used, no story is usable, or the file was edited since it was written.
    """
    inquiries = [
        _inquiry(name, f"{slug}-{number + 1:02d}", number, panels, names, endpoint)
        for name, slug in _slugs(names).items()
        for number in range(games)
    ]
    folder = out.with_name(f".{out.name}-replies")
    with held(folder, "animegamer benchmark write"):
        _check_unedited(out, folder)
        written = _write(out, inquiries, ask_all(inquiries, endpoint, folder, "stories", progress))
        with replacing(folder / _WRITTEN) as temporary:
            temporary.write_text(_sha256(out), encoding="ascii")
    return written


def _check_unedited(out: Path, folder: Path) -> None:
    """Raise a UserError if someone has edited the file since the last command wrote it."""
    record = folder / _WRITTEN
    if out.exists() and not (record.exists() and record.read_text(encoding="ascii") == _sha256(out)):
        raise UserError(f"{out} was edited after it was written; rename it to keep the edits, and run this again")


def _sha256(path: Path) -> str:
    with disk_errors(path):
        return hashlib.sha256(path.read_bytes()).hexdigest()


def _write(out: Path, inquiries: Sequence[Story], answers: Answers[tuple[StoryPanel, ...]]) -> WrittenGames:
    stories = [_panels(game.name, answers.usable[game.name]) for game in inquiries if game.name in answers.usable]
    if not stories:
        name, reason = next(iter(answers.refused.items()))
        raise UserError(f"none of {len(inquiries)} stories is usable; {name}: {reason} Name another model")
    games = write_benchmark(out, [panel for story in stories for panel in story])
    return WrittenGames(games, answers.refused, answers.repaired)


def _inquiry(protagonist: str, game: str, number: int, panels: int, names: Sequence[str], endpoint: Endpoint) -> Story:
    prompt = load_prompt("story")
    companions = [name for name in names if name != protagonist]
    text = prompt.render(
        protagonist=protagonist,
        panels=panels,
        theme=THEMES[number % len(THEMES)],
        number=number + 1,
        companions="\n".join(companions) or "(none)",
        most_places=most_places(panels),
        example=format_panel(EXAMPLE_PANEL),
    )
    ingredients = {
        **model_ingredients(endpoint),
        "prompt": prompt.identity,
        "text": hashlib.sha256(text.encode()).hexdigest()[:16],
    }
    return Inquiry(
        game,
        ingredients,
        lambda: [user(text)],
        partial(_read, protagonist=protagonist, companions=companions, panels=panels),
        story_pattern(protagonist, companions, panels),
    )


def _read(text: str, protagonist: str, companions: Sequence[str], panels: int) -> tuple[StoryPanel, ...]:
    story = parse_story(text, protagonist, companions, panels)
    check_story(story)
    return story


def _panels(game: str, story: Sequence[StoryPanel]) -> list[Panel]:
    return [
        Panel(
            game=game, turn=turn, level=panel.ML, **{name: value for name, value in vars(panel).items() if name != "ML"}
        )
        for turn, panel in enumerate(story, start=1)
    ]


def _slugs(names: Sequence[str]) -> dict[str, str]:
    """Return a file name for each character, with a number added if two would be equal."""
    slugs: dict[str, str] = {}
    for number, name in enumerate(names, start=1):
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
        slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:48] or "character"
        slugs[name] = f"{slug}-{number}" if slug in slugs.values() else slug
    return slugs
