"""Games of a study as the page shows them: a film per agent under a name that reveals nothing, and the answers.

`EVALUATION/study/films` holds the films, joined from the clips of each game; a film is made once.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from pipeline.core.atomic import replacing
from pipeline.core.errors import UserError
from pipeline.core.records import RecordError
from pipeline.video.clip_files import ClipShape, clip_shape, join_clips, read_frames, write_clip
from training.evaluation.folder import EvaluationFolder
from training.evaluation.played import PlayedTurn
from training.evaluation.study import (
    CRITERIA,
    CRITERION,
    LETTERS,
    STATE,
    Answer,
    Study,
    StudyError,
    append_answer,
    read_answers,
)

CRF = 17
"""x264 quality of films that cannot be joined without encoding."""
CHANGED = "The films of a game have changed since this page was opened: reload it, and rank that game again."


class Ranking(BaseModel):
    """Answer as the page sends it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    game: str
    """Token of the game: the answer is about the films that the participant saw, whatever has joined since."""
    criterion: str
    order: list[str]
    """Letters of the films ranked so far, the best first."""


class RefusedError(UserError):
    """Answer that cannot be stored; the message is shown to the participant."""


@dataclass(frozen=True)
class GameFilm:
    """Film of a game by an agent."""

    path: Path
    starts: tuple[float, ...]
    """Start of each turn in seconds."""
    states: tuple[dict[str, int] | None, ...]
    """Changes of the character values by turn; None: the agent gives none."""


@dataclass(frozen=True)
class ShownGame:
    """A game that all agents have played, with its film by agent."""

    name: str
    instructions: tuple[str, ...]
    films: dict[str, GameFilm]

    @property
    def criteria(self) -> list[str]:
        """Names of the criteria that are asked."""
        has_states = all(any(film.states) for film in self.films.values())
        return [criterion.name for criterion in CRITERIA if has_states or criterion.name != STATE]


def shown_games(evaluation: EvaluationFolder) -> list[ShownGame]:
    """Return the games that all agents have played to the end; makes the films that are missing.

    Raises:
        StudyError: there is no such game, the number of agents cannot be ranked, or a clip cannot be read.
        DiskError: a film cannot be written.
    """
    agents = [agent.name for agent in evaluation.request.agents]
    if not 2 <= len(agents) <= len(LETTERS):
        raise StudyError(f"{evaluation.path}: {len(agents)} agents: a study ranks 2 to {len(LETTERS)}")
    turns = [turn for agent in agents for turn in evaluation.played(agent)]
    games = []
    for game in evaluation.benchmark.games:
        played = {
            name: [turn for turn in turns if (turn.agent, turn.panel.game) == (name, game.name)] for name in agents
        }
        if all(len(own) == len(game.panels) for own in played.values()):
            films = {name: _film(own, evaluation.path / "study" / "films") for name, own in played.items()}
            games.append(ShownGame(game.name, tuple(panel.instruction for panel in game.panels), films))
    if not games:
        raise StudyError(
            f"{evaluation.path}: no game that every agent has played to the end; "
            "`animegamer evaluate run` plays what is missing"
        )
    return games


class StudyGames:
    """Games and answers of a study for all its participants, who have numbers from 0; thread-safe."""

    def __init__(self, folder: Path, study: Study, games: Sequence[ShownGame]) -> None:
        self.folder = folder
        self.study = study
        self._games = {game.name: game for game in games}
        self._answers = read_answers(folder).current
        self._lock = threading.Lock()
        numbers = range(len(study.participants))
        self._tokens = {(number, self._token(number, game)): game for number in numbers for game in games}
        self._films = {
            self._film_name(number, film): film.path
            for number in numbers
            for game in games
            for film in game.films.values()
        }

    @classmethod
    def of(cls, evaluation: EvaluationFolder, study: Study) -> Self:
        """Return the games of an evaluation.

        Raises:
            StudyError: they cannot be shown.
        """
        return cls(evaluation.path / "study", study, shown_games(evaluation))

    def __len__(self) -> int:
        return len(self._games)

    def rows(self, number: int) -> list[dict[str, Any]]:
        """Return the games of a participant for the page, in their order, with the answers so far."""
        with self._lock:
            order = self.study.games_of(number, list(self._games))
            return [self._row(number, self._games[name]) for name in order]

    def film(self, name: str) -> Path:
        """Return the path of a film.

        Raises:
            KeyError: there is no such film.
        """
        return self._films[name]

    def save(self, number: int, ranking: Ranking) -> list[str]:
        """Append an answer to the file; when it returns, it is on the disk. Return the letters as stored.

        Raises:
            RefusedError: it is about no game, criterion or film of this participant as they are shown now.
            DiskError: it cannot be written; the file is as it was.
        """
        game = self._tokens.get((number, ranking.game))
        if not game:
            raise RefusedError(CHANGED)
        if ranking.criterion not in game.criteria:
            raise RefusedError("This game has no such criterion.")
        by_letter = dict(zip(LETTERS, shown := self._shown(number, game), strict=False))
        if len(set(ranking.order)) < len(ranking.order) or not set(ranking.order) <= by_letter.keys():
            raise RefusedError("Rank films of this game, each once.")
        answer = Answer(
            time=datetime.now(UTC),
            participant=self.study.participants[number].name,
            game=game.name,
            criterion=ranking.criterion,
            order=tuple(by_letter[letter] for letter in ranking.order),
            shown=shown,
        )
        with self._lock:
            append_answer(self.folder, answer)
            self._answers[answer.subject] = answer
        return ranking.order

    def done(self, number: int) -> int:
        """Return the number of games that a participant has ranked by every criterion."""
        return sum(
            all(len(row["orders"].get(criterion, ())) == len(row["films"]) for criterion in row["criteria"])
            for row in self.rows(number)
        )

    def _shown(self, number: int, game: ShownGame) -> tuple[str, ...]:
        return self.study.shown(number, game.name, list(game.films))

    def _row(self, number: int, game: ShownGame) -> dict[str, Any]:
        shown = self._shown(number, game)
        letters = dict(zip(shown, LETTERS, strict=False))
        person, orders = self.study.participants[number].name, {}
        for criterion in game.criteria:
            answer = self._answers.get((person, game.name, criterion))
            if answer and set(answer.shown) == set(shown):
                orders[criterion] = [letters[agent] for agent in answer.order]
        films = [
            {
                "letter": letters[agent],
                "name": self._film_name(number, game.films[agent]),
                "starts": game.films[agent].starts,
                "states": game.films[agent].states,
            }
            for agent in shown
        ]
        return {
            "token": self._token(number, game),
            "instructions": game.instructions,
            "criteria": game.criteria,
            "films": films,
            "orders": orders,
        }

    def _token(self, number: int, game: ShownGame) -> str:
        """Return the name of a game with its films at their letters; it changes when an agent joins."""
        return self._secret(number, game.name, *self._shown(number, game))

    def _film_name(self, number: int, film: GameFilm) -> str:
        return self._secret(number, film.path.name)

    def _secret(self, *of: object) -> str:
        text = " ".join(map(str, of)).encode()
        return hashlib.blake2b(text, key=self.study.key.encode()[:64], digest_size=12).hexdigest()


def criteria_rows() -> list[dict[str, str]]:
    """Return the criteria for the page."""
    return [{"name": each.name, "title": each.title, "question": each.question} for each in CRITERION.values()]


def _film(turns: Sequence[PlayedTurn], folder: Path) -> GameFilm:
    """Return the film of a game, made if it is missing; its file's name follows from the clips."""
    clips = [turn.clip for turn in turns]
    try:
        shapes = [clip_shape(clip) for clip in clips]
        marks = [f"{clip.resolve()} {clip.stat().st_size} {clip.stat().st_mtime_ns}" for clip in clips]
        target = folder / f"{hashlib.sha256(chr(10).join(marks).encode()).hexdigest()[:24]}.mp4"
        if not target.exists():
            _write_film(clips, shapes, target)
    except RecordError as error:
        raise StudyError(f"{clips[0].parent}: clip {error}; play the game again, or replace the clip") from error
    lengths = (float(shape.frames / shape.fps) for shape in shapes[:-1])
    states = tuple(turn.line.changes.model_dump() if turn.line.changes else None for turn in turns)
    return GameFilm(target, tuple(accumulate(lengths, initial=0.0)), states)


def _write_film(clips: Sequence[Path], shapes: Sequence[ClipShape], target: Path) -> None:
    """Join clips; clips of several encoders or sizes are encoded anew, at the rate and size of the first."""
    try:
        with replacing(target) as temporary:
            join_clips(clips, temporary)
    except RecordError:
        width, height = shapes[0].width // 2 * 2, shapes[0].height // 2 * 2
        frames = (frame for clip in clips for frame in read_frames(clip, range, width, height))
        with replacing(target) as temporary:
            write_clip(temporary, frames, shapes[0].fps, CRF)
