"""Command `review`: the page on which people look at clips, correct captions and decide about keep or drop."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.core.errors import UserError

if TYPE_CHECKING:
    from pipeline.core.store import Dataset


LocalDataset = Annotated[
    str, typer.Argument(metavar="DIR", help="Output folder of `animegamer build --out`, on this machine.")
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 takes any free port.")]


def review(
    dataset: LocalDataset,
    port: Port = 8732,
    reviewer: Annotated[str | None, typer.Option(help="Name of the reviewer. [default: your user name]")] = None,
) -> None:
    """Serve a page to review the clips on, on this machine only.

    Every decision is added to `review.jsonl` in the dataset, or to `[review] file`, and is published by the next
    build. Captions of the machine are never changed. Two people may review at once, each with a separate server.

        animegamer review data/ --reviewer anna
    """
    from flows.web.review_app import serve_review
    from flows.web.review_clips import ReviewTask
    from pipeline.core.config import recorded
    from pipeline.reviews.applied import review_path

    opened = local_dataset(dataset)
    settings = recorded(opened.record.config, opened.root)
    task = ReviewTask(file=review_path(opened.root, settings.review), reviewer=reviewer or own_name())
    serve_review(opened, task, port)


def local_dataset(place: str) -> Dataset:
    """Open a dataset in a folder of this machine. UserError if it is at an address, or is no dataset."""
    from pipeline.core.store import open_dataset
    from pipeline.remote.objects import is_address

    if is_address(place):
        raise UserError(  # without the address: it may carry a secret
            "an address instead of a folder: the page needs a dataset on this machine. Copy the dataset here, and name "
            "the copy. To publish the decisions, pass their file as `[review] file` to a build into the address"
        )
    return open_dataset(Path(place))


def own_name() -> str:
    """Return the name of this user on this machine.

    Raises:
        UserError: the machine does not know it, as in some containers.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # KeyError up to Python 3.12
        raise UserError("this machine has no name for you: give one with --reviewer") from error
