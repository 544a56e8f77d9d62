"""Rules of the game on the page, as a TOML table that readers can change: costs, needs, moods, wishes, and the ending.

    rules = read_rules(SHIPPED)
    rules.motions["run"].needs.stamina

The rules belong to the page alone: `Game`, `play --game` and the evaluation know the model's predictions only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from pipeline.core.errors import UserError
from pipeline.core.records import faults_of
from pipeline.core.settings import Settings
from pipeline.core.toml import read_toml

SHIPPED = Path(__file__).parent / "rules.toml"
"""Rules of the packaged model."""
START = 50
VALUES = ("stamina", "social", "entertainment")
Change = Annotated[int, Field(ge=-100, le=100)]
Level = Annotated[int, Field(ge=0, le=100)]
Name = Annotated[str, Field(min_length=1, max_length=100)]


class Points(Settings):
    """Change of the three values."""

    stamina: Change = 0
    social: Change = 0
    entertainment: Change = 0


class Needs(Settings):
    """Least values."""

    stamina: Level = 0
    social: Level = 0
    entertainment: Level = 0


class MotionRule(Points):
    """Gains of the character that does a motion, and the values that it needs."""

    needs: Needs = Needs()
    instead: tuple[Name, ...] = ()
    """Motions of a character that cannot do it, the first choice first."""
    company: Literal["needed", "welcome", "none"] = "welcome"
    puts_on: str = ""
    takes_off: str = ""


class Mood(Settings):
    """Word for a range of values."""

    word: Name
    stamina: tuple[Level, Level] = (0, 100)
    social: tuple[Level, Level] = (0, 100)
    entertainment: tuple[Level, Level] = (0, 100)

    def fits(self, values: dict[str, int]) -> bool:
        """Return whether all values are in their ranges."""
        ranges = {name: getattr(self, name) for name in VALUES}
        return all(least <= values[name] <= most for name, (least, most) in ranges.items())


class Wish(Settings):
    """Wish of a character; an empty condition is none."""

    wants: Name
    """Continues the sentence `NAME wants`."""
    who: str = ""
    motion: str = ""
    place: str = ""
    time: str = ""
    mood: str = ""
    company: bool = False
    times: int = Field(1, ge=1, le=100)
    different: Literal["", "motions", "places", "friends"] = ""


class Rules(Settings):
    """The whole table."""

    turns: int = Field(0, ge=0, le=10_000)
    open_wishes: int = Field(0, ge=0, le=10)
    patience: int = Field(0, ge=0, le=10_000)
    every_turn: Points = Points()
    outside: Points = Points()
    company: Points = Points()
    again: Points = Points()
    new: Points = Points()
    wish: Points = Points()
    given_up: Points = Points()
    motions: dict[Name, MotionRule] = Field({}, max_length=1000)
    moods: tuple[Mood, ...] = Field((), max_length=100)
    wishes: tuple[Wish, ...] = Field((), max_length=200)

    def motion(self, name: str) -> MotionRule:
        """Return the rule of a motion; one that is not in the table costs nothing and needs nothing."""
        return self.motions.get(name, _FREE)

    @property
    def casting(self) -> dict[str, str]:
        """Company of the motions that need it, or have none."""
        return {name: rule.company for name, rule in self.motions.items() if rule.company != "welcome"}

    def mood_of(self, values: dict[str, int]) -> str:
        """Return the first mood that fits, empty if none does."""
        return next((mood.word for mood in self.moods if mood.fits(values)), "")


_FREE = MotionRule()


def read_rules(path: Path) -> Rules:
    """Read a table of rules.

    Raises:
        UserError: the file cannot be read, or a rule is not valid; the message names it.
    """
    try:
        return Rules.model_validate(read_toml(path))
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; name a table of rules, or leave --rules out") from error
    except ValidationError as error:
        raise UserError(f"{path} is not valid ({faults_of(error)}); compare it with {SHIPPED}") from error
