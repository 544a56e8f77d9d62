"""Frozen bases: complete, of the right kind, without running code, from a folder or by id from the hub's cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from models.checkpoint import Checkpoint
from models.config import CONFIG, Base, Component, full_config
from models.hub import PUBLISHED, load_tokenizer
from pipeline.core.errors import UserError
from tests.support.networks.tiny_models import copy_of_tiny, tiny_checkpoint
from training.baselines.config import full

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LOADS: dict[Component, Callable[[Checkpoint], object]] = {
    "language_model": Checkpoint.game_model,
    "transformer": Checkpoint.shot_decoder,
    "autoencoder": Checkpoint.autoencoder,
    "text_encoder": Checkpoint.text_encoder,
    "image_encoder": Checkpoint.image_encoder,
}


def _file_of(checkpoint: Checkpoint, component: Component) -> Path:
    return next((checkpoint.folder / "bases" / component).glob("*.safetensors"))


@pytest.mark.parametrize("component", LOADS)
def test_a_base_that_lacks_a_tensor_is_refused(tmp_path: Path, component: Component) -> None:
    checkpoint = Checkpoint.open(copy_of_tiny(tmp_path / "checkpoint"))
    path = _file_of(checkpoint, component)
    tensors = load_file(path)
    name = next(name for name in sorted(tensors) if name.endswith(("proj.weight", "wi_0.weight", "conv.weight")))
    save_file({key: tensor for key, tensor in tensors.items() if key != name}, path, metadata={"format": "pt"})
    with pytest.raises(UserError, match=f"bases/{component} cannot be loaded"):
        LOADS[component](checkpoint)


def test_a_base_of_another_kind_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    folder = copy_of_tiny(tmp_path / "checkpoint")
    (folder / "bases/language_model").rename(folder / "bases/away")
    (folder / "bases/text_encoder").rename(folder / "bases/language_model")
    with pytest.raises(UserError, match="it is a t5, where language_model must be mistral"):
        Checkpoint.open(folder).game_model()


PICKLES: dict[Component, str] = {
    "language_model": "pytorch_model.bin",
    "autoencoder": "diffusion_pytorch_model.bin",
    "image_encoder": "pytorch_model.bin",
}


class _Hostile:
    """Object whose unpickling makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.slow
@pytest.mark.parametrize("component", PICKLES)
def test_a_base_that_is_only_a_pickle_of_tensors_is_loaded_and_named(
    tmp_path: Path, component: Component, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = Checkpoint.open(copy_of_tiny(tmp_path / "checkpoint"))
    path, name = _file_of(checkpoint, component), PICKLES[component]
    expected = _state(LOADS[component](checkpoint))
    torch.save(load_file(path), path.with_name(name))
    found = _state(LOADS[component](checkpoint))
    assert not caplog.records, "with safetensors beside it, the pickle is left alone"
    path.unlink()
    found = _state(LOADS[component](checkpoint))
    assert f"bases/{component} has no safetensors: {name} is read as a pickle" in caplog.text
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[key], tensor) for key, tensor in expected.items())


@pytest.mark.parametrize("component", PICKLES)
def test_the_code_of_a_hostile_pickle_is_not_run(tmp_path: Path, component: Component) -> None:
    checkpoint = Checkpoint.open(copy_of_tiny(tmp_path / "checkpoint"))
    path, owned = _file_of(checkpoint, component), tmp_path / "owned"
    torch.save({**load_file(path), "more": _Hostile(owned)}, path.with_name(PICKLES[component]))
    path.unlink()
    with pytest.raises(
        UserError, match=f"bases/{component} cannot be loaded: its weights are a pickle that could run"
    ) as error:
        LOADS[component](checkpoint)
    assert "torch.load" not in str(error.value)
    assert "Copy" not in str(error.value)
    assert not owned.exists()
    torch.load(path.with_name(PICKLES[component]), weights_only=False)  # noqa: TID251
    assert owned.exists(), "otherwise the pickle would prove nothing"


def _state(network: object) -> dict[str, torch.Tensor]:
    assert isinstance(network, torch.nn.Module)
    return network.state_dict()


def _as_hub_cache(home: Path, repository: str, folder: Path, subfolder: str = "") -> None:
    """Arrange a folder as in the hub's cache, as if it had been downloaded."""
    place = home / "hub" / f"models--{repository.replace('/', '--')}"
    (place / "refs").mkdir(parents=True, exist_ok=True)
    (place / "refs/main").write_text(COMMIT)
    snapshot = place / "snapshots" / COMMIT / subfolder
    snapshot.parent.mkdir(parents=True, exist_ok=True)
    snapshot.symlink_to(folder.absolute())


@pytest.mark.slow
def test_bases_are_found_by_id_in_the_hubs_cache_and_pinned_to_its_commit(tmp_path: Path) -> None:
    bases = tiny_checkpoint() / "bases"
    _as_hub_cache(tmp_path / "home", "maker/mistral", bases / "language_model")
    _as_hub_cache(tmp_path / "home", "maker/video", bases / "transformer", "transformer")
    _as_hub_cache(tmp_path / "home", "maker/texts", bases / "text_encoder")
    config = tmp_path / "start" / CONFIG
    script = f"""
from pathlib import Path
from models.checkpoint import Checkpoint
from models.config import Base, tiny_config
from models.untrained import new_checkpoint
config = tiny_config()
bases = {{"language_model": Base(id="maker/mistral"), "transformer": Base(id="maker/video", subfolder="transformer")}}
bases["text_encoder"] = Base(id="maker/texts")
checkpoint = new_checkpoint(Path({str(config.parent)!r}), config.replaced(bases={{**config.bases, **bases}}), seed=1)
checkpoint.game_model(), checkpoint.shot_decoder(), checkpoint.text_encoder()
"""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], env=environment, check=True)
    written = json.loads(config.read_text())["bases"]
    assert {written[name]["revision"] for name in ("language_model", "transformer")} == {COMMIT}
    assert written["autoencoder"] == {
        "id": "bases/autoencoder",
        "revision": None,
        "subfolder": "",
        "tokenizer_subfolder": "",
    }
    assert not (tmp_path / "start/bases/language_model").exists()


def named(folder: Path, base: str) -> Checkpoint:
    """Copy of the tiny checkpoint whose configuration names another language model."""
    values = json.loads((copy_of_tiny(folder) / CONFIG).read_text())
    values["bases"]["language_model"]["id"] = base
    (folder / CONFIG).write_text(json.dumps(values))
    return Checkpoint.open(folder)


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ("evil/evil", "evil/evil is not fetched unasked: `bases` in config.json names it.* `hf download evil/evil`"),
        ("evil; rm -rf x", "'evil; rm -rf x' is no folder and no id of the model hub: name one under `bases`"),
        ("e" * 5000, "'e{100}' is no folder and no id"),
        ("/etc", "/etc cannot be loaded: it has no config.json"),
        ("../../../../etc", "etc cannot be loaded: it has no config.json"),
    ],
)
def test_a_base_that_the_user_has_not_chosen_is_not_fetched(tmp_path: Path, base: str, said: str) -> None:
    checkpoint = named(tmp_path / "checkpoint", base)
    with pytest.raises(UserError, match=said):
        checkpoint.game_model()


def test_bases_of_the_published_models_are_fetched_unasked() -> None:
    baselines = [full(kind) for kind in ("gc", "gfc", "gsc")]
    parts = [part for each in baselines for part in (each.video, each.picture) if part]
    bases = [*full_config().bases.values(), *(part.base for part in parts)]
    assert {base.id for base in bases} == PUBLISHED


def test_sizes_of_a_base_beyond_the_memory_are_named(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(copy_of_tiny(tmp_path / "checkpoint"))
    sizes = checkpoint.folder / "bases/transformer/config.json"
    sizes.write_text(json.dumps({**json.loads(sizes.read_text()), "num_attention_heads": 10**9}))
    with pytest.raises(UserError, match=r"its sizes take more memory than this machine has\. Correct the sizes"):
        checkpoint.shot_decoder()


@pytest.mark.parametrize("content", ["{}", "[1]", "no JSON"])
def test_a_damaged_tokenizer_is_named(tmp_path: Path, content: str) -> None:
    checkpoint = Checkpoint.open(copy_of_tiny(tmp_path / "checkpoint"))
    (checkpoint.folder / "tokenizer/tokenizer.json").write_text(content)
    with pytest.raises(UserError, match="tokenizer cannot be loaded"):
        checkpoint.tokenizer()
    folder = checkpoint.folder / "bases/text_encoder"
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(UserError, match="text_encoder cannot be loaded"):
        load_tokenizer(Base(id=str(folder)))
