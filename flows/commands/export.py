"""Command `export`: kept clips as a trainer of video models or the Hugging Face hub reads them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.commands.clips import (
    CharacterOption,
    FilmOption,
    LevelOption,
    SearchOption,
    SplitOption,
    TagOption,
    WithoutOption,
    clip_choice,
)
from flows.commands.dataset import DatasetPlace, open_workspace
from flows.commands.model import need_networks
from flows.console.terminal import say
from pipeline.core.errors import UserError
from pipeline.core.plain_text import printable

if TYPE_CHECKING:
    from pipeline.publish.export.plan import ExportPlan
    from pipeline.publish.export.run import Written

Trainer = Literal[
    "musubi-tuner", "diffusion-pipe", "onetrainer", "ai-toolkit", "simpletuner",
    "diffsynth", "finetrainers", "videox-fun", "ltx-trainer", "folder", "huggingface",
]  # fmt: skip
Preset = Literal["wan", "hunyuan", "ltx", "cogvideox", "ltx2", "h3"]
"""Families of models, with their frames, rate and size."""


def export(
    dataset: DatasetPlace,
    trainer: Annotated[Trainer, typer.Option("--for", help="Trainer or other reader to export for.")],
    out: Annotated[str, typer.Option("--out", "-o", help="Folder of the export: new, or an earlier one to update.")],
    preset: Annotated[
        Preset | None,
        typer.Option(help="Cut the clips again, in the format of these models. [default: keep the clips as they are]"),
    ] = None,
    film: FilmOption = None,
    split: SplitOption = None,
    level: LevelOption = None,
    character: CharacterOption = None,
    tag: TagOption = None,
    without: WithoutOption = None,
    search: SearchOption = "",
    captions: Annotated[
        Literal["instruction", "sentence", "tags"] | None,
        typer.Option(help="Form of the captions. [default: a sentence for trainers, the instruction line for others]"),
    ] = None,
    dialogue: Annotated[
        bool, typer.Option("--dialogue", help="Quote the dialogue in captions; `folder` also gets .vtt files.")
    ] = False,
    trigger: Annotated[str, typer.Option(metavar="WORD", help="Start all captions with this word.")] = "",
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=OTHER", help="Rename a character in captions: Ponyo=p0ny0. May be repeated."),
    ] = None,
    references: Annotated[
        bool, typer.Option("--references", help="Pair each clip with a picture of its character from another scene.")
    ] = False,
    stills: Annotated[
        int, typer.Option(min=0, metavar="N", help="Add the N sharpest stills of each look of each character.")
    ] = 0,
    table: Annotated[
        Literal["csv", "json", "jsonl"] | None,
        typer.Option(help="Format of the table of clips, if the trainer reads one. [default: keeps captions best]"),
    ] = None,
) -> None:
    """Export kept clips for a trainer of video models: videos, captions, configuration and start command.

        animegamer export data/ --for musubi-tuner --preset wan --out ponyo-wan/

        animegamer export data/ --for huggingface --out hub/

        animegamer export run/ --for huggingface --out hub-model/

    You can run the command again: it writes only what has changed, and resumes an interrupted export. Clips are hard
    links to the dataset's files if the disk allows it. With a trained run or a checkpoint in place of a dataset, the
    command exports the model, with a card, to a new folder.
    """
    from pipeline.remote.objects import is_address

    if is_address(out):
        raise UserError("--out is an address; export to a folder of this machine, and upload that")
    if _is_model(dataset):
        _export_model(Path(dataset), trainer, Path(out))
        return
    from flows.console.progress import Bars
    from pipeline.core.atomic import read_locked
    from pipeline.core.progress import watched
    from pipeline.plan.film_stages import STAGE_NAMES
    from pipeline.publish.export.captions import CaptionForm, parse_names
    from pipeline.publish.export.plan import ExportRequest, make_plan
    from pipeline.publish.export.run import write_export
    from pipeline.publish.export.trainers import PRESETS, TRAINERS

    request = ExportRequest(
        trainer=TRAINERS[trainer],
        out=Path(out),
        preset=PRESETS[preset] if preset else None,
        choice=clip_choice(film, split, level, character, tag, without, search=search),
        form=CaptionForm(captions) if captions else None,
        trigger=trigger.strip(),
        names=parse_names(name or ()),
        table=table,
        dialogue=dialogue,
        references=references,
        stills=stills,
    )
    opened = open_workspace(dataset).dataset
    with read_locked(opened.root, "animegamer export"):
        plan = make_plan(opened, request, STAGE_NAMES)
        for notice in plan.notices:
            say(printable(notice), "yellow")
        with Bars().watching(), watched(request.out.name or out, "export") as watch:
            written = write_export(plan, watch)
    _say_written(plan, written)


def _is_model(place: str) -> bool:
    """Return whether a place is a run or a checkpoint: torch is imported for these alone."""
    folder = Path(place)
    return any((folder / name).is_file() for name in ("config.json", "recipe.json", "result/config.json"))


def _export_model(place: Path, trainer: Trainer, out: Path) -> None:
    """Export a trained model with its card, and print how to upload it."""
    if trainer != "huggingface":
        raise UserError(f"{place} is a trained model, not a dataset: export it with --for huggingface")
    need_networks()
    from training.model_card import UPLOAD, export_model

    for notice in export_model(place, out):
        say(notice, "yellow")
    say(f"upload: {UPLOAD.format(out=shlex.quote(str(out)))}")


def _say_written(plan: ExportPlan, written: Written) -> None:
    clips, out = plan.format, plan.request.out
    for reason, count in written.left_out.items():
        say(f"{count} clips left out: {reason}", "yellow")
    for name, yours in written.edits.items():
        became = f"your version is {yours} now" if yours != name else "left as it is; delete it for a new one"
        say(f"{name} was changed by hand: {became}", "yellow")
    how = "cut from the films" if plan.cuts else "as in the dataset"
    say(
        f"{out}: {written.clips} clips of {clips.frames} frames at {float(clips.fps):g} a second, "
        f"{clips.width}x{clips.height}, {how}; {written.changed} files written, {written.removed} removed"
    )
    if plan.request.trainer.templates:
        command = f"sh {shlex.quote(str(out.absolute() / 'start.sh'))}"
        say(f"start: {command}   (in a checkout of {plan.request.trainer.title})")
