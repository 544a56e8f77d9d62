"""Features of a run: those that a phase needs, for all splits, encoded by all processes together."""

from __future__ import annotations

from collections.abc import Sequence

from accelerate import Accelerator

from models.checkpoint import Checkpoint
from models.hub import check_base
from training.config import Recipe
from training.data.definitions import TRAINED, Name, bytes_per_clip, open_cache
from training.data.encoding import Encoder
from training.data.filling import share_out, space_needed
from training.phases.assembly import SplitData
from training.run_folder import RunFolder


def make_features(
    run_folder: RunFolder,
    recipe: Recipe,
    checkpoint: Checkpoint,
    names: Sequence[Name],
    accelerator: Accelerator,
    *,
    rollout: bool = False,
) -> tuple[SplitData, SplitData | None]:
    """Return the splits `train` and `val` with all features computed. Collective call: all processes take part.

    Args:
        run_folder: folder, data and callbacks of the run.
        recipe: its settings.
        checkpoint: checkpoint with the networks.
        names: features, each after those that it depends on.
        accelerator: devices and processes.
        rollout: predictions are made after those of the turns before, not after the recorded past.

    Raises:
        UserError: a base is another network, the disk has too little space, or a clip or a network cannot be read.
    """
    for component in checkpoint.config.bases:  # also those that only later phases load
        check_base(component, checkpoint.base(component))
    folder, shared = run_folder.features, run_folder.shared_features is not None
    with accelerator.main_process_first():  # it hashes the networks, and remembers the hashes for the others
        splits = {
            split: SplitData(
                catalog, open_cache(folder, catalog, checkpoint, recipe, names, rollout=rollout, shared=shared)
            )
            for split, catalog in run_folder.catalogs().items()
        }
    caches = [split.cache for split in splits.values()]
    if accelerator.is_main_process:
        clips = sum(len(split.catalog) for split in splits.values())
        later = [name for name in TRAINED if name not in names and "predictions" not in names]
        if line := space_needed(caches, names, clips * bytes_per_clip(later, checkpoint.config)):
            run_folder.say(line)
    work = share_out(caches, names, accelerator)
    encoder = Encoder(checkpoint, recipe, accelerator.device, rollout=rollout)
    for name in names:
        encoder.make(name, work[name], run_folder.watch_features)
        accelerator.wait_for_everyone()  # a feature may depend on others, also of other shards
    return splits["train"], splits.get("val")
