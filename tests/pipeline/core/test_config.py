"""Configuration files: accepted and refused values, named faults, and the printed default read back."""

import tomllib
import traceback
from fractions import Fraction
from pathlib import Path

import pytest

from pipeline.core.config import CardSettings, ClipSettings, Config, MotionSettings, load_config, recorded
from pipeline.core.errors import UserError
from pipeline.core.toml import as_toml

AWKWARD = 'a "quoted" \\ back\tslash\nnew line \x7f \x01 é 千 \U0001f600 # no comment'


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "build.toml"
    path.write_text(text, encoding="utf-8")
    return path


def fault(tmp_path: Path, text: str) -> str:
    path = write(tmp_path, text)
    with pytest.raises(UserError) as caught:
        load_config(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message


def test_the_printed_default_is_read_back(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, as_toml(Config()))) == Config()


def test_every_kind_of_value_is_read_back(tmp_path: Path) -> None:
    config = Config(
        clips=ClipSettings(frames=17, fps=Fraction(24000, 1001), fit="stretch", seconds=1.00001),
        motion=MotionSettings(edges=(1e-05, 1.0, 2.25, 1e3), checkpoint="weights/memflow.ckpt"),
        card=CardSettings(title=AWKWARD, notes="# Heading\n\n* one\n* two\n"),
    )
    assert load_config(write(tmp_path, as_toml(config))) == config


def test_the_default_documents_every_key() -> None:
    text = as_toml(Config())
    for name, section in Config.model_fields.items():
        assert f"[{name}]" in text
        for key, field in section.annotation.model_fields.items():  # type: ignore[union-attr]
            assert field.description, f"{name}.{key} has no description"
            assert f"# {field.description}\n{key} =" in text or f"# {field.description}\n# {key} =" in text


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[clips]\nframe = 16\n", "clips.frame"),
        ("[clip]\nframes = 16\n", "clip"),
        ("frames = 16\n", "frames"),
        ("[clips]\nframes = 1\n", "clips.frames"),
        ("[clips]\nframes = 16.5\n", "clips.frames"),
        ('[clips]\nframes = "many"\n', "clips.frames"),
        ("[clips]\nwidth = 721\n", "clips.width"),
        ('[clips]\nfit = "zoom"\n', "clips.fit"),
        ("[clips]\nfps = 0\n", "clips.fps"),
        ("[clips]\nfps = 61\n", "clips.fps"),
        ('[clips]\nfps = "1/0"\n', "clips.fps"),
        ('[clips]\nfps = "fast"\n', "clips.fps"),
        ("[clips]\nfps = nan\n", "clips.fps"),
        ("[film]\nend_seconds = 0\n", "film.end_seconds"),
        ("[film]\nend_seconds = inf\n", "film.end_seconds"),
        ("[film]\nend_seconds = nan\n", "film.end_seconds"),
        ("[crop]\nkeyframes = 61\n", "crop.keyframes"),
        ("[motion]\nedges = [1.0, 2.0, 3.0]\n", "motion.edges"),
        ("[motion]\nedges = [1.0, 2.0, 2.0, 3.0]\n", "motion.edges"),
        ("[selection]\nmax_dark_share = 1.5\n", "selection.max_dark_share"),
        ("crop = 3\n", "crop"),
    ],
)
def test_a_wrong_value_is_named_with_its_file(tmp_path: Path, text: str, named: str) -> None:
    assert f": {named}" in fault(tmp_path, text)


@pytest.mark.parametrize(
    "address",
    [
        "http://me:hunter2@host/v1",
        "http://me:12/hunter2@host/v1",
        "http://me:hunter2/v1",
        "me:hunter2@host/v1",
        "http://host/v1?key=hunter2",
        "http://host/v1#hunter2",
        "hunter2",
        "",
    ],
)
def test_an_address_that_may_contain_a_secret_is_refused_and_not_repeated(tmp_path: Path, address: str) -> None:
    path = write(tmp_path, f'[captions]\nendpoint = "{address}"\n')
    with pytest.raises(
        UserError, match=r"captions\.endpoint: .*the key|captions\.endpoint: .*not an address"
    ) as caught:
        load_config(path)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_every_fault_of_a_file_is_named_at_once(tmp_path: Path) -> None:
    message = fault(tmp_path, "[clips]\nframes = 1\nwidht = 720\n[shards]\nsamples = 0\n")
    assert all(name in message for name in ("clips.frames", "clips.widht", "shards.samples"))


def test_a_file_that_is_not_toml(tmp_path: Path) -> None:
    assert "cannot be read as TOML" in fault(tmp_path, "[clips\n")
    path = tmp_path / "latin1.toml"
    path.write_bytes('[card]\ntitle = "é"\n'.encode("latin-1"))
    with pytest.raises(UserError, match="cannot be read as TOML"):
        load_config(path)


def test_no_such_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"build\.toml: no such file; `animegamer config > build\.toml`"):
        load_config(tmp_path / "build.toml")
    with pytest.raises(UserError, match="cannot be read"):
        load_config(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        ".".join(["a"] * 5_000) + " = 1",
        "[" + ".".join(["a"] * 5_000) + "]",
        "x = {" + ".".join(['"b=c"'] * 100) + " = 1}",
    ],
)
def test_a_file_that_would_take_the_parser_all_memory_is_refused(tmp_path: Path, text: str) -> None:
    assert "nested deeper than 32 levels" in fault(tmp_path, text)


@pytest.mark.parametrize(
    "notes",
    [
        '"' + "Yes. " * 1000 + '"',
        "'''" + "[{" * 100 + "'''",
        '"""' + '\\" [ . \n' * 100 + '""""' + " # " + "." * 100,
    ],
)
def test_dots_and_brackets_in_a_text_are_no_nesting(tmp_path: Path, notes: str) -> None:
    written = write(tmp_path, f"[card]\nnotes = {notes}\n")
    assert load_config(written).card.notes == tomllib.loads(written.read_text())["card"]["notes"]


def test_a_file_or_a_text_that_is_too_large_is_refused(tmp_path: Path) -> None:
    assert "larger than 1 MB, so it is not read" in fault(tmp_path, "#" * 1_000_001)
    long_notes = fault(tmp_path, f'[card]\nnotes = "{"x" * 100_001}"')
    assert "card.notes: String should have at most 100000 characters" in long_notes
    with pytest.raises(UserError, match="/dev/zero: larger than 1 MB"):
        load_config(Path("/dev/zero"))


def test_many_faults_and_long_names_stay_one_short_line(tmp_path: Path) -> None:
    sections = "\n".join(map("[s{}]".format, range(10_000)))
    assert "s4: Extra inputs are not permitted and 9,995 more (" in fault(tmp_path, sections)
    assert len(fault(tmp_path, f"[{'k' * 100_000}]")) < 400
    assert len(fault(tmp_path, f"[{'k' * 100_000}]\n" * 2)) < 400


def test_a_dataset_of_an_older_version_keeps_its_settings(tmp_path: Path) -> None:
    gone = {"scenes": {"min_content": 20.0, "dissolve_misfit": 0.25}}
    assert recorded(gone, tmp_path).scenes.min_content == 20
    with pytest.raises(UserError, match=r"dataset\.json.*min_content.*run `animegamer build` again"):
        recorded({"scenes": {"min_content": -1}}, tmp_path)
