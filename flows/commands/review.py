"""Commands `review` and `cast`: pages on which people correct captions of clips, and name the figures on them."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.clips import FilmOption
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


def cast(
    dataset: LocalDataset,
    film: FilmOption = None,
    port: Port = 8733,
    reviewer: Annotated[str | None, typer.Option(help="Your name. [default: your user name]")] = None,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in your browser.")] = False,
) -> None:
    """Serve a page to name the figures of a dataset on, by keys, on this machine only.

    The build needs `[embed]`. A row is a cluster of figures. What you say is added to `cast.jsonl` in the dataset. The
    key w writes the characters of clips to the review file, where a review wins over them, and pictures of each
    character to the cast folder of the last build, or to `cast/` in the dataset.

        animegamer cast data/ --open
    """
    from flows.web.cast_app import CastTask, serve_cast
    from pipeline.core.config import recorded
    from pipeline.publish.seen_clips import film_ids
    from pipeline.remote.objects import is_address
    from pipeline.reviews.applied import review_path

    opened = local_dataset(dataset)
    record = opened.record
    source = record.cast_source
    task = CastTask(
        reviewer=reviewer or own_name(),
        review_file=review_path(opened.root, recorded(record.config, opened.root).review),
        cast_folder=opened.root / "cast" if source is None or is_address(source) else Path(source),
        films=tuple(film_ids(record.films, film or ())),
    )
    serve_cast(opened, task, port, browse=browse)


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
