"""Files of a network that the user names: on the Hugging Face hub, in a folder, or one ONNX file.

    found = find_network("deepghs/ccip_onnx/ccip-caformer-24-randaug-pruned", "characters", fetch=True)
    found.network, found.sha256, found.beside["config.json"]
    find_network(OWN, "pictures", fetch=False)      ships with the package (`python -m benchmarks.cast.network`)

An id of the hub may end in a folder of the repository. What the hub sends is trusted at the first fetch only: its hash
is written into `networks.json` in the dataset, and every later build compares it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from pipeline.core.atomic import write_json
from pipeline.core.embed_settings import NetworkRole
from pipeline.core.errors import UserError
from pipeline.core.hashes import weights_sha256
from pipeline.core.ingredients import read_note

_NAMES: dict[NetworkRole, tuple[str, ...]] = {
    "pictures": ("onnx/vision_model.onnx", "vision_model.onnx", "model.onnx"),
    "figures": ("model.onnx",),
    "characters": ("model_feat.onnx", "model.onnx"),
    "words": ("onnx/text_model.onnx", "text_model.onnx"),
}
"""Names of a network in its folder, the first that is there counts: of transformers.js, and of deepghs."""
PREPARATION = "preprocessor_config.json"
"""File that decides what a network is given."""
_BESIDE = (PREPARATION, "config.json", "tokenizer.json")
_OF_HUB = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:/([\w.-][\w./-]*))?")
PINS, OWN = "networks.json", "own"
_OWN = Path(__file__).with_name("pictures.onnx")


class NotHereError(UserError):
    """A network of the hub is not in its cache on this machine, and may not be fetched."""


@dataclass(frozen=True)
class NetworkFiles:
    """Files of a network on this machine."""

    source: str
    """As the user named it."""
    network: Path
    """Its ONNX file."""
    beside: Mapping[str, Path]
    """Files that describe it, by name, as far as it has them."""
    from_hub: bool = False

    @property
    def sha256(self) -> str:
        """SHA-256 of the ONNX file."""
        return weights_sha256(self.network)


def find_network(source: str, role: NetworkRole, *, fetch: bool) -> NetworkFiles:
    """Find the files of a network.

    Args:
        source: id on the hub, folder, ONNX file, or `own`.
        role: use of the network, which decides the names to look for in a folder.
        fetch: fetch what is missing from the hub; otherwise its cache on this machine must have it.

    Raises:
        UserError: there is no such file, folder or repository, or the hub cannot be reached.
        NotHereError: without `fetch`, the cache lacks it.
    """
    path = Path(source)
    if source == OWN and role == "pictures":
        return NetworkFiles(source, _OWN, {PREPARATION: _OWN.with_suffix(".json")})
    if path.is_file():
        return NetworkFiles(source, path, _beside(path.parent))
    if path.is_dir():
        for name in _NAMES[role]:
            if (path / name).is_file():
                return NetworkFiles(source, path / name, _beside(path))
        raise UserError(f"{source} has no {' or '.join(_NAMES[role])}; name the ONNX file itself in `[embed] {role}`")
    if path.is_absolute() or not (of_hub := _OF_HUB.fullmatch(source)):
        raise UserError(f"{source}: no such file or folder; `[embed] {role}` names one, or an id of the hub")
    repository, folder = of_hub[1], f"{of_hub[2].rstrip('/')}/" if of_hub[2] else ""
    for name in _NAMES[role]:
        if network := _from_hub(repository, folder + name, fetch=fetch):
            beside = {each: _from_hub(repository, folder + each, fetch=fetch) for each in _BESIDE}
            return NetworkFiles(source, network, {key: file for key, file in beside.items() if file}, from_hub=True)
    raise UserError(f"{source} on the hub has no {' or '.join(_NAMES[role])}; check `[embed] {role}`")


def check_pins(root: Path, networks: Iterable[NetworkFiles], *, record: bool) -> None:
    """Compare networks from the hub with the hashes in the dataset at `root`, and with `record` add those of new ones.

    Raises:
        UserError: a network differs from the one that the dataset was made with, or the note is damaged.
    """
    path = root / PINS
    try:
        pins = read_note(path) or {}
    except ValidationError as error:
        raise UserError(f"{path}: damaged ({error}); restore it, or delete it to trust the networks anew") from error
    new = {}
    for found in networks:
        if not found.from_hub:
            continue
        key = f"{found.source} {found.network.name}"
        if key not in pins:
            new[key] = {"sha256": found.sha256, "bytes": found.network.stat().st_size}
        elif (pinned := pins[key]["sha256"]) != found.sha256:
            raise UserError(
                f"{found.source}: {found.network.name} is not the file that this dataset was made with (SHA-256 "
                f"{found.sha256[:12]}, was {pinned[:12]}); to embed again with it, delete its entry in {path}"
            )
    if new and record:
        write_json(path, pins | new)


def _beside(folder: Path) -> dict[str, Path]:
    """Files that describe a network, in its folder or, as below `onnx/`, in the one above."""
    places = (folder, folder.parent) if folder.name == "onnx" else (folder,)
    found = {name: place / name for place in reversed(places) for name in _BESIDE}
    return {name: file for name, file in found.items() if file.is_file()}


def _from_hub(repository: str, name: str, *, fetch: bool) -> Path | None:
    """File of a repository in the hub's cache, fetched if need be; None if the repository has no such file.

    The hub is told the repository and the file, and nothing else unless the user has set `HF_HUB_DISABLE_TELEMETRY`.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # huggingface_hub reads it when it is imported
    import httpx
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

    cached = try_to_load_from_cache(repository, name)
    if isinstance(cached, str):  # what a dataset was made with needs no hub
        return Path(cached)
    if cached is not None:  # known not to exist
        return None
    remedy = "fetch it on a machine with access, and name the folder or file in [embed]"
    if not fetch:
        raise NotHereError(f"{repository}: {name} is not in the hub's cache on this machine; a build fetches it")
    try:
        return Path(hf_hub_download(repository, name))
    except LocalEntryNotFoundError as error:
        raise UserError(f"{repository}: the hub cannot be reached for {name}; {remedy}") from error
    except EntryNotFoundError:
        return None
    except (HfHubHTTPError, httpx.HTTPError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"{repository}: {name} cannot be fetched from the hub ({reason}); {remedy}") from error
