"""Published files that cannot be used: clear errors, and no partial checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.released.importer import find_files, import_weights, open_tensors
from pipeline.core.errors import UserError
from tests.support.networks.published_weights import (
    ADALN,
    DIT,
    LLM,
    TINY,
    decoder_state,
    language_shapes,
    positions,
    random_state,
    write_release,
)

State = dict[str, Tensor]


@pytest.fixture(scope="module")
def language() -> State:
    return random_state(language_shapes(TINY), seed=2)


@pytest.fixture(scope="module")
def decoder() -> State:
    return decoder_state(TINY, seed=1)


@pytest.fixture(scope="module")
def download(tmp_path_factory: pytest.TempPathFactory, language: State, decoder: State) -> Path:
    return write_release(tmp_path_factory.mktemp("hub"), language, decoder)


def test_all_faults_are_reported_together_and_nothing_is_written(
    tmp_path: Path, language: State, decoder: State
) -> None:
    wrong_language, wrong_decoder = dict(language), dict(decoder)
    del wrong_language[f"{LLM}model.norm.modules_to_save.default.weight"]
    wrong_language["face_resampler.proj.0.weight"] = torch.zeros(2, 2)
    wrong_decoder[f"{DIT}transformer.layers.1.attention.dense.matrix_B.0"] = torch.zeros(128, 7)
    del wrong_decoder[f"{ADALN}adaLN_modulations.2.1.bias"]
    source = write_release(tmp_path / "hub", wrong_language, wrong_decoder)
    with pytest.raises(UserError) as caught:
        import_weights(source, tmp_path / "new")
    message = str(caught.value)
    assert "4 faults" in message
    assert f"pytorch_model.bin: missing: {LLM}model.norm.modules_to_save.default.weight [32]" in message
    assert "unknown: face_resampler.proj.0.weight [2, 2]" in message
    assert "layers.1.attention.dense.matrix_B.0 [128, 7], expected [128, 8]" in message
    assert f"missing: {ADALN}adaLN_modulations.2.1.bias [1536]" in message
    assert [path.name for path in tmp_path.iterdir()] == ["hub"]


def cut_short(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def left_by_git(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\nsize 29000000000\n")


def without_tensors(path: Path) -> None:
    torch.save({"module": {"weights": "elsewhere"}}, path)


def other_positions(path: Path) -> None:
    state = torch.load(path, weights_only=False)  # noqa: TID251  a file this test has written
    state["module"][f"{DIT}mixins.pos_embed.pos_embedding"] = positions(replace(TINY, grid=(5, 6, 4)))
    torch.save(state, path)


def not_finite(path: Path) -> None:
    state = torch.load(path, weights_only=False)  # noqa: TID251  a file this test has written
    state["module"][f"{DIT}flow_embed.2.bias"][3] = float("inf")
    torch.save(state, path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut_short, "not a complete PyTorch file"),
        (left_by_git, "Git LFS pointer"),
        (without_tensors, "no state dict of tensors"),
        (other_positions, "not the table of CogVideoX 2B"),
        (not_finite, r"flow_embed\.2\.bias has values that are not finite"),
    ],
)
def test_damaged_files_are_refused(
    tmp_path: Path, language: State, decoder: State, damage: Callable[[Path], None], message: str
) -> None:
    source = write_release(tmp_path / "hub", language, decoder)
    damage(source / "VDM_Decoder-Qiqi/10000/mp_rank_00_model_states.pt")
    with pytest.raises(UserError, match=message):
        import_weights(source, tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["hub"]


class Touch:
    """Object whose pickle creates a file when it is loaded without restrictions."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    torch.save({"module": {}, "callback": Touch(tmp_path / "was run")}, tmp_path / "weights.pt")
    with pytest.raises(UserError, match="would run its code: refused"):
        open_tensors(tmp_path / "weights.pt")
    assert not (tmp_path / "was run").exists()


def test_an_interrupt_leaves_no_files(tmp_path: Path, download: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_weights(download, tmp_path / "new", progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_files_of_one_release_are_found(tmp_path: Path) -> None:
    tiny: State = {"weight": torch.zeros(1)}
    with pytest.raises(UserError, match="holds no published weights"):
        find_files(tmp_path)
    write_release(tmp_path, tiny, tiny, "Qiqi")
    language, decoder = find_files(tmp_path)
    assert language == tmp_path / "MLLM-Qiqi/pytorch_model.bin"
    assert decoder == tmp_path / "VDM_Decoder-Qiqi/10000/mp_rank_00_model_states.pt"
    write_release(tmp_path, tiny, tiny, "Sosuke")
    with pytest.raises(UserError, match="which character, one of Qiqi, Sosuke"):
        find_files(tmp_path)
    assert find_files(tmp_path, "Sosuke")[0] == tmp_path / "MLLM-Sosuke/pytorch_model.bin"
    with pytest.raises(UserError, match="no weights of 'Ponyo', only of: Qiqi, Sosuke"):
        find_files(tmp_path, "Ponyo")
    (tmp_path / "MLLM-Sosuke/pytorch_model.bin").unlink()
    with pytest.raises(UserError, match=r"MLLM-Sosuke/pytorch_model.bin is missing"):
        find_files(tmp_path, "Sosuke")
    decoder.unlink()
    with pytest.raises(UserError, match=r"VDM_Decoder-Qiqi/10000/mp_rank_00_model_states.pt is missing"):
        find_files(tmp_path, "Qiqi")


def test_files_without_their_folders_are_found(tmp_path: Path) -> None:
    for name in ("pytorch_model.bin", "mp_rank_00_model_states.pt"):
        (tmp_path / name).touch()
    assert find_files(tmp_path) == (tmp_path / "pytorch_model.bin", tmp_path / "mp_rank_00_model_states.pt")


@pytest.mark.parametrize("content", [b"1" * 5000, b"\xff\xfe", b"100\x1b[31m"])
def test_a_step_that_is_no_name_is_refused(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "VDM_Decoder-Qiqi"
    folder.mkdir()
    (folder / "latest").write_bytes(content)
    with pytest.raises(UserError, match="latest does not hold the name of a folder, such as 10000; fetch"):
        find_files(tmp_path)
