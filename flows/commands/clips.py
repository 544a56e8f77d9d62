"""Command `clips`, the clips that meet conditions as lines or CSV; and the options of a choice of clips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flows.commands.dataset import DatasetPlace
from flows.console.terminal import say

if TYPE_CHECKING:
    from pipeline.publish.clip_rows import ClipRow
    from pipeline.publish.seen_clips import ClipChoice

Split = Literal["train", "val"]
Verdict = Literal["kept", "dropped", "failed", "pending"]
"""Verdicts on a clip; `pending` if the build has not selected it yet."""
FilmOption = Annotated[
    list[str] | None,
    typer.Option(help="Only clips of this film: its id, or its file name with or without suffix. Several times: any."),
]
SplitOption = Annotated[Split | None, typer.Option(help="Only clips of this split.")]
LevelOption = Annotated[str | None, typer.Option(help="Only clips of these motion levels: 4, or 4-5.")]
CharacterOption = Annotated[
    list[str] | None, typer.Option(help="Only clips with this character on screen. Several times: all of these.")
]
TagOption = Annotated[
    list[str] | None, typer.Option(help="Only clips with this value of a tag, as EV=forest. Several times: all.")
]
WithoutOption = Annotated[
    list[str] | None,
    typer.Option(metavar="FLAG", help="Only clips without this flag, as logo. Several times: none of these."),
]
SearchOption = Annotated[
    str,
    typer.Option(
        help="Only clips with all these words, or beginnings of words, in caption, dialogue, reasons or names."
    ),
]


def clip_choice(
    film: list[str] | None = None,
    split: Split | None = None,
    level: str | None = None,
    character: list[str] | None = None,
    tag: list[str] | None = None,
    without: list[str] | None = None,
    verdict: Verdict | None = None,
    search: str = "",
) -> ClipChoice:
    """Return the choice that these options make. ChoiceError if a level or a tag is not of its form."""
    from pipeline.publish.seen_clips import ClipChoice, parse_levels, parse_tag

    return ClipChoice(
        films=tuple(film or ()),
        split=split,
        levels=None if level is None else parse_levels(level),
        characters=tuple(character or ()),
        tags=tuple(map(parse_tag, tag or ())),
        without=tuple(without or ()),
        verdict=verdict,
        words=search,
    )


def clips(
    dataset: DatasetPlace,
    film: FilmOption = None,
    split: SplitOption = None,
    level: LevelOption = None,
    character: CharacterOption = None,
    tag: TagOption = None,
    without: WithoutOption = None,
    verdict: Annotated[Verdict | None, typer.Option(help="Only clips with this verdict.")] = None,
    search: SearchOption = "",
    like: Annotated[
        str | None,
        typer.Option(
            metavar="CLIP_ID|PICTURE", help="List the embedded clips most like a clip or picture, best first."
        ),
    ] = None,
    like_words: Annotated[
        str | None, typer.Option(metavar="WORDS", help="List the embedded clips most like words, by `[embed] words`.")
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="With --like or --like-words: number of clips.")] = 20,
    csv: Annotated[bool, typer.Option("--csv", help="Print everything known about each clip, as CSV.")] = False,
) -> None:
    """List the clips of a dataset that meet all conditions; without any, all clips, dropped ones too.

    Of a dataset at an address, only its tables are fetched.

        animegamer clips data/ --verdict kept --level 4-5 --character Ponyo

        animegamer clips data/ --tag EV=forest --search "run" --csv > clips.csv

        animegamer clips data/ --like sketch.png --most 50
    """
    from pipeline.plan.workspace import open_tables
    from pipeline.publish.clip_rows import clip_rows
    from pipeline.publish.seen_clips import seen_clips

    choice = clip_choice(film, split, level, character, tag, without, verdict, search)
    is_search = like is not None or like_words is not None
    opened = open_tables(dataset, vectors=is_search).dataset
    everything = seen_clips(opened)
    chosen = choice.of(opened.record, everything)
    likeness: dict[str, float] = {}
    if is_search:
        from pipeline.publish.similar_clips import search as search_alike

        likeness = search_alike(opened, like, like_words)
        found = [seen for seen in chosen if seen.clip.clip_id in likeness]
        chosen = sorted(found, key=lambda seen: -likeness[seen.clip.clip_id])[:most]
    rows = clip_rows(opened, chosen)
    if csv:
        _print_csv(rows)
    else:
        for row in rows:
            typer.echo(f"{likeness[row.clip_id]:.3f}  {_line(row)}" if likeness else _line(row))
    say(f"{len(rows):,} of {len(everything):,} clips")


def _line(row: ClipRow) -> str:
    from pipeline.core.plain_text import printable

    minutes, seconds = divmod(row.start_seconds, 60)
    fate = f"{row.verdict}: {', '.join(row.reasons)}" if row.reasons else row.verdict
    said = "  ".join((row.text or row.fault or "no caption", *(row.dialogue or ())))
    level = row.level or "-"
    return printable(f"{row.clip_id}  {minutes:3.0f}:{seconds:06.3f}  level {level}  {fate}  {said}")


def _print_csv(rows: list[ClipRow]) -> None:
    import sys
    from csv import writer
    from dataclasses import fields
    from operator import attrgetter

    from pipeline.publish.clip_rows import ClipRow

    names = [field.name for field in fields(ClipRow)]
    lines = writer(sys.stdout, lineterminator="\n")
    lines.writerow(names)
    lines.writerows(map(_cell, values) for values in map(attrgetter(*names), rows))


def _cell(value: Any) -> Any:
    """Value as CSV has it: names of a list are separated by `; `, and no character moves the cursor of a terminal."""
    from pipeline.core.plain_text import printable

    text = "; ".join(value) if isinstance(value, tuple) else value
    return printable(text) if isinstance(text, str) else text
