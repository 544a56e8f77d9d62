"""Trainers of video models: the clips they are trained with, the form of their data, and the templates of their files.

Facts are from the trainers' own sources; each entry names the file. All read MP4 files. Most read a text file per clip
(`beside`), the others a table (`table`) with a row per clip. A preset has the frames, rate and size that a family of
models is trained with, 2 seconds each. Wan and HunyuanVideo compress time by 4 and take 4n + 1 frames (musubi-tuner,
docs/dataset_config.md). LTX-Video takes 8n + 1 (diffusion-pipe, models/ltx_video.py: `round_frames=8`), and so does the
CogVideoX preset. The rates of Wan and HunyuanVideo are from diffusion-pipe (models/wan/wan.py: `framerate = 16`,
models/hunyuan_video.py: 24). The rate of LTX-Video is from SimpleTuner's examples.

Two presets are spans of several clips, with sound, for models that make both. LTX-2 is trained with 8n + 1 frames, as
121 at 24 a second and 768x512 (DiffSynth-Studio, examples/ltx2/model_training; LTX-2, packages/ltx-trainer/docs/
dataset-preparation.md, which filters scenes shorter than 5 seconds). MiniMax-H3 takes 17n frames at 24 a second, its
side is a multiple of 32, and 136 is the longest bucket in the example (diffusion-pipe, models/minimax_h3.py,
examples/minimax_h3_dataset.toml).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Literal

from pipeline.core.records import Film, Record
from pipeline.core.store import ClipFormat
from pipeline.publish.export.captions import CaptionForm

NTSC = Fraction(1001, 1000)
"""Factor between a nominal rate and the rate of a video of 24000/1001 or 30000/1001 frames a second."""
Row = dict[str, str | int | float]


TableKind = Literal["csv", "json", "jsonl"]


class Preset(Record):
    """Clip format of a family of models."""

    name: str
    frames: int
    fps: int
    width: int
    height: int
    multiple: int
    """The model takes n * multiple + remainder frames."""
    remainder: int = 1
    side: int = 16
    """Divisor of width and height: autoencoder and patches together divide both."""
    spans: bool = False
    """True: spans of several clips, with the film's sound."""

    @property
    def taken(self) -> str:
        """Frames that the model takes, as `4n + 1`."""
        return f"{self.multiple}n + {self.remainder}" if self.remainder else f"{self.multiple}n"

    @property
    def clips(self) -> ClipFormat:
        """Format of the clips."""
        return ClipFormat(frames=self.frames, fps=Fraction(self.fps), width=self.width, height=self.height)

    def has_frames_of(self, clips: ClipFormat) -> bool:
        """Return True if clips have the frames and the rate of the preset."""
        return clips.frames == self.frames and clips.fps == Fraction(self.fps)

    def takes_size_of(self, clips: ClipFormat) -> bool:
        """Return True if the model takes clips of this size."""
        return clips.width % self.side == clips.height % self.side == 0


PRESETS: Final = {
    "wan": Preset(name="wan", frames=33, fps=16, width=832, height=480, multiple=4),
    "hunyuan": Preset(name="hunyuan", frames=49, fps=24, width=960, height=544, multiple=4),
    "ltx": Preset(name="ltx", frames=49, fps=24, width=768, height=512, multiple=8, side=32),
    "cogvideox": Preset(name="cogvideox", frames=17, fps=8, width=720, height=480, multiple=8),
    "ltx2": Preset(name="ltx2", frames=121, fps=24, width=768, height=512, multiple=8, side=32, spans=True),
    "h3": Preset(name="h3", frames=136, fps=24, width=768, height=512, multiple=17, remainder=0, side=32, spans=True),
}


def pace(film: Film) -> Fraction:
    """Film seconds per second of a clip: 24000/1001 frames per second count as 24, so these clips play 0.1% faster.

    Otherwise 49 frames at 24 per second would show one of 48 film frames twice, even in a film with an odd step.
    """
    return NTSC if film.fps.denominator == 1001 else Fraction(1)


def nominal_rate(film: Film) -> Fraction:
    """Film frames per second of a clip to choose from; telecine has 4 film frames for 5 of the video."""
    undone = Fraction(4, 5) if "telecine undone" in (film.fields or ()) else Fraction(1)
    return film.fps * undone * pace(film)


@dataclass(frozen=True)
class Table:
    """Table of all clips: a function from path, caption and size to a row, and the kinds of file that it reads."""

    row: Callable[[str, str, int, int], Row]
    kinds: tuple[TableKind, ...]
    """Kinds of file, the default first."""
    missing_in_csv: frozenset[str] = frozenset()
    """Captions that the trainer's reader of CSV reads as missing."""
    sound_column: str = ""
    """Column with the path again, from which sound is read; empty: the trainer finds the sound by itself."""


@dataclass(frozen=True)
class Trainer:
    """Form of the data that a trainer reads."""

    name: str
    title: str
    presets: tuple[str, ...]
    """Families of models that it trains; empty: any frames, any rate."""
    folder: str = "videos"
    """Folder of the clips in the export."""
    form: CaptionForm = CaptionForm.sentence
    """Default form of captions."""
    beside: bool = False
    """True: a text file per clip."""
    table: Table | None = None
    templates: Mapping[str, str] = field(default_factory=dict)
    """Files of the export by the template they are made from."""
    hears_all: bool = False
    """True: it trains with sound, and skips clips without."""
    holds_last: bool = False
    """True: spans show their last frame twice, because the trainer reads a frame less than there are."""
    is_hub: bool = False
    """True: a folder for the hub, see `texts.py`."""
    has_subtitles: bool = False
    """True: subtitles beside each clip, for people; trainers take unknown files for media, or refuse them."""
    unfit: Mapping[str, str] = field(default_factory=dict)
    """Families that it trains, but not with the frames of the preset, with the reason."""


_MISSING_IN_PANDAS: Final = frozenset(
    ("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>")
) | {"N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}
"""Missing values of `pandas.read_csv`."""


# musubi-tuner: docs/dataset_config.md, docs/wan.md. Without `source_fps` all frames are used at their own rate;
# `target_frames` is cut to 4n + 1 frames.
_MUSUBI = Trainer(
    name="musubi-tuner",
    title="musubi-tuner",
    presets=("wan", "hunyuan"),
    beside=True,
    templates={"dataset.toml.j2": "dataset.toml", "start.sh.j2": "start.sh"},
)

# diffusion-pipe: examples/dataset.toml, utils/dataset.py (`*.txt` of the same stem, `size_buckets`), models/base.py
# (`convert_framerate`: every video is brought to the model's rate by repeating or leaving out frames),
# models/minimax_h3.py (sound from the mp4, resampled to 32 kHz; a clip without a track trains pictures alone).
_DIFFUSION_PIPE = Trainer(
    name="diffusion-pipe",
    title="diffusion-pipe",
    presets=("wan", "hunyuan", "h3"),
    beside=True,
    templates={"dataset.toml.j2": "dataset.toml", "config.toml.j2": "config.toml", "start.sh.j2": "start.sh"},
    unfit={
        "ltx": "it brings every LTX video to 25 frames a second, which repeats frames (models/ltx_video.py)",
        "ltx2": "it trains LTX-2 without sound (models/ltx2.py)",
    },
)

# OneTrainer: modules/dataLoader/mixin/DataLoaderText2ImageMixin.py (`LoadVideo(..., target_frame_rate=24)`, prompts of
# the `.txt` beside), modules/util/config/ConceptConfig.py, training_presets/Hunyuan Video. TrainConfig.py rewrites a
# configuration without `__version` as one of its first version, which fails; 11 has `offload_fraction` in each part.
_ONETRAINER = Trainer(
    name="onetrainer",
    title="OneTrainer",
    presets=("hunyuan",),
    beside=True,
    templates={"config.json.j2": "config.json", "start.sh.j2": "start.sh"},
    unfit={
        "wan": "it loads every video at 24 frames a second, which repeats frames of 16 (DataLoaderText2ImageMixin.py)"
    },
)

# ai-toolkit: config/examples/train_lora_wan21_1b_24gb.yaml, train_lora_wan22_14b_24gb.yaml (`num_frames` evenly spaced
# over the whole video, so all of them if it has as many), toolkit/dataloader_mixins.py.
_AI_TOOLKIT = Trainer(
    name="ai-toolkit",
    title="ai-toolkit",
    presets=("wan",),
    beside=True,
    templates={"config.yaml.j2": "config.yaml", "start.sh.j2": "start.sh"},
)

# SimpleTuner: documentation/DATALOADER.md, documentation/quickstart/WAN.md (`caption_strategy: textfile`,
# `video.num_frames`), simpletuner/examples.
_SIMPLETUNER = Trainer(
    name="simpletuner",
    title="SimpleTuner",
    presets=("wan", "hunyuan", "ltx"),
    beside=True,
    templates={
        "multidatabackend.json.j2": "multidatabackend.json",
        "config.json.j2": "config/clips/config.json",
        "start.sh.j2": "start.sh",
    },
)

# DiffSynth-Studio: diffsynth/core/data/unified_dataset.py (metadata as csv, json or jsonl with paths relative to
# `dataset_base_path`; csv is read by pandas, which takes a caption `None` for a missing one), operators.py (`LoadVideo`
# takes the first `num_frames`), examples/wanvideo/model_training/lora/Wan2.1-T2V-1.3B.sh. LTX-2 reads the sound of the
# mp4 that `input_audio` names (examples/ltx2/model_training/train.py, lora/LTX-2.3-T2AV-splited.sh). A row without it
# ends the run; an mp4 without a track trains pictures alone (`LoadAudioWithTorchaudio`). If no clip has sound, the
# command does not ask for it (lora/LTX-2-T2AV-noaudio.sh). LTX-2 gets as many frames as fit the length of the file in
# hundredths of a second (`get_available_num_frames`): 113 of 121, but all of them if one more follows.
_DIFFSYNTH = Trainer(
    name="diffsynth",
    title="DiffSynth-Studio",
    presets=("wan", "ltx2"),
    table=Table(
        lambda path, caption, *_: {"video": path, "prompt": caption},
        ("jsonl", "json", "csv"),
        missing_in_csv=_MISSING_IN_PANDAS,
        sound_column="input_audio",
    ),
    holds_last=True,
    templates={"start.sh.j2": "start.sh"},
)

# finetrainers: finetrainers/data/dataset.py (`VideoCaptionFilePairDataset`; a `metadata` file or a tar in the folder
# would choose another reader), finetrainers/functional/video.py (the bucket of the same frames keeps all of them).
_FINETRAINERS = Trainer(
    name="finetrainers",
    title="finetrainers",
    presets=("wan", "hunyuan", "ltx", "cogvideox"),
    beside=True,
    templates={"training.json.j2": "training.json", "start.sh.j2": "start.sh"},
)

# VideoX-Fun: scripts/wan2.1/README_TRAIN_LORA.md, scripts/cogvideox_fun/README_TRAIN_LORA.md (metadata.json with
# `file_path`, `text`, `type`, `width`, `height`), videox_fun/data/dataset_image_video.py (`video_sample_stride` 1 and
# as many frames as there are take every frame; the README's stride of 2 or 3 would not).
_VIDEOX_FUN = Trainer(
    name="videox-fun",
    title="VideoX-Fun",
    presets=("wan", "cogvideox"),
    table=Table(
        lambda path, text, *size: {
            "file_path": path,
            "text": text,
            "type": "video",
            "width": size[0],
            "height": size[1],
        },
        ("json", "csv"),
    ),
    templates={"start.sh.j2": "start.sh"},
)

# LTX-2, packages/ltx-trainer: docs/dataset-preparation.md (table with `caption` and `video`, a path relative to it),
# scripts/process_videos.py (the first frames of the bucket at the file's own rate, the sound of the mp4; pandas reads a
# CSV), docs/configuration-reference.md, docs/training-modes.md. A clip without a track is encoded without sound, then
# datasets.py skips it (`_discover_samples`); without `audio` in the strategy it trains pictures.
_LTX_TRAINER = Trainer(
    name="ltx-trainer",
    title="LTX-2, in packages/ltx-trainer",
    presets=("ltx2",),
    table=Table(
        lambda path, caption, *_: {"caption": caption, "video": path},
        ("jsonl", "json", "csv"),
        missing_in_csv=_MISSING_IN_PANDAS,
    ),
    hears_all=True,
    templates={"config.yaml.j2": "config.yaml", "start.sh.j2": "start.sh"},
)

_FOLDER = Trainer(
    name="folder",
    title="a folder",
    presets=(),
    folder="",
    form=CaptionForm.instruction,
    beside=True,
    has_subtitles=True,
)

# Hugging Face: `datasets` reads a folder of videos with `metadata.jsonl` and a column `file_name` as `videofolder`.
_HUGGINGFACE = Trainer(
    name="huggingface", title="the Hugging Face hub", presets=(), form=CaptionForm.instruction, is_hub=True
)

TRAINERS: Final = {
    trainer.name: trainer
    for trainer in (
        *(_MUSUBI, _DIFFUSION_PIPE, _ONETRAINER, _AI_TOOLKIT, _SIMPLETUNER, _DIFFSYNTH, _FINETRAINERS, _VIDEOX_FUN),
        _LTX_TRAINER,
        *(_FOLDER, _HUGGINGFACE),
    )
}
