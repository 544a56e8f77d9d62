"""Grammar of the files that trainers read: keys, types and values of configurations and tables, options of commands.

Written down from the trainers' sources, which each class names. Most trainers ignore a key that they do not know, so a
misspelt one would be found only by its effect; here it is an error.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

Pair = Annotated[list[int], Field(min_length=2, max_length=2)]
Triple = Annotated[list[int], Field(min_length=3, max_length=3)]


class Exact(BaseModel):
    """Table in which every key is known and every value has the type of the trainer's."""

    model_config = ConfigDict(extra="forbid", strict=True)


# --- musubi-tuner, src/musubi_tuner/dataset/config_utils.py: `ConfigSanitizer`, a voluptuous schema without extras


class MusubiGeneral(Exact):
    """`DATASET_ASCENDABLE_SCHEMA`."""

    caption_extension: str | None = None
    batch_size: int = 1
    num_repeats: int = 1
    resolution: int | Pair = [960, 544]
    enable_bucket: bool = False
    bucket_no_upscale: bool = False
    skip_corrupted_cache: bool = False


class MusubiVideos(MusubiGeneral):
    """`VIDEO_DATASET_DISTINCT_SCHEMA`; `source_fps` would resample, so it must not be there."""

    video_directory: str
    control_directory: str | None = None
    target_frames: list[int]
    frame_extraction: Literal["head", "chunk", "slide", "uniform", "full"]
    frame_stride: int = 1
    frame_sample: int = 1
    max_frames: int = 129
    cache_directory: str
    source_fps: None = None
    fp_latent_window_size: int = 9


class Musubi(Exact):
    """dataset.toml."""

    general: MusubiGeneral
    datasets: Annotated[list[MusubiVideos], Field(min_length=1)]


# --- diffusion-pipe, utils/dataset.py and examples/dataset.toml; examples/main_example.toml; docs/supported_models.md


class PipeDirectory(Exact):
    """`[[directory]]`."""

    path: str
    num_repeats: int = 1
    mask_path: str | None = None
    cache_shuffle_num: int = 0
    skip_empty_caption: bool = True


class PipeData(Exact):
    """dataset.toml; with `size_buckets` (width, height, frames) no other sizes are needed."""

    size_buckets: list[Triple]
    directory: Annotated[list[PipeDirectory], Field(min_length=1)]


class PipeWan(Exact):
    """`[model]` of Wan."""

    type: Literal["wan"]
    ckpt_path: str
    transformer_path: str | None = None
    llm_path: str | None = None
    dtype: Literal["bfloat16"]
    transformer_dtype: Literal["float8"] | None = None
    timestep_sample_method: Literal["logit_normal", "uniform"]


class PipeHunyuan(Exact):
    """`[model]` of HunyuanVideo."""

    type: Literal["hunyuan-video"]
    ckpt_path: str
    dtype: Literal["bfloat16"]
    transformer_dtype: Literal["float8"] | None = None
    timestep_sample_method: Literal["logit_normal", "uniform"]


class PipeAdapter(Exact):
    """`[adapter]`."""

    type: Literal["lora"]
    rank: int
    dtype: Literal["bfloat16"]
    init_from_existing: str | None = None


class PipeOptimizer(Exact):
    """`[optimizer]`."""

    type: Literal["adamw_optimi", "AdamW8bitKahan", "Prodigy", "automagic"]
    lr: float
    betas: list[float]
    weight_decay: float
    eps: float


class Pipe(Exact):
    """config.toml."""

    output_dir: str
    dataset: str
    epochs: int
    max_steps: int | None = None
    micro_batch_size_per_gpu: int
    pipeline_stages: int
    gradient_accumulation_steps: int
    gradient_clipping: float
    warmup_steps: int
    blocks_to_swap: int | None = None
    save_every_n_epochs: int
    checkpoint_every_n_minutes: int
    activation_checkpointing: bool
    partition_method: Literal["parameters", "manual"]
    save_dtype: Literal["bfloat16"]
    caching_batch_size: int
    map_num_proc: int | None = None
    steps_per_print: int
    video_clip_mode: Literal["single_beginning", "single_middle", "multiple_overlapping"]
    model: Annotated[PipeWan | PipeHunyuan, Field(discriminator="type")]
    adapter: PipeAdapter
    optimizer: PipeOptimizer


# --- OneTrainer, modules/util/config/TrainConfig.py and ConceptConfig.py


class OnePart(Exact):
    """`TrainModelPartConfig`."""

    train: bool
    weight_dtype: Literal["FLOAT_8", "BFLOAT_16", "NFLOAT_4", "INT_8"]
    offload_fraction: float = 0.0


class OneImage(Exact):
    """`ConceptImageConfig`: both are on unless they are turned off."""

    enable_crop_jitter: Literal[False]
    enable_random_flip: Literal[False]


class OneText(Exact):
    """`ConceptTextConfig`; `sample` is the text file beside the video."""

    prompt_source: Literal["sample"]
    enable_tag_shuffling: bool


class OneConcept(Exact):
    """`ConceptConfig`."""

    name: str
    path: str
    enabled: bool
    include_subdirectories: bool
    seed: int
    image: OneImage
    text: OneText


class OneTrainer(Exact):
    """`TrainConfig`: without a version of 11 at least, migrations meant for old files fail on this one."""

    version: Annotated[int, Field(alias="__version", ge=11)]
    model_type: Literal["HUNYUAN_VIDEO"]
    base_model_name: str
    training_method: Literal["LORA"]
    workspace_dir: str
    cache_dir: str
    output_model_destination: str
    output_model_format: Literal["COMFY_LORA"]
    batch_size: int
    learning_rate: float
    resolution: Annotated[str, Field(pattern=r"^\d+$")]
    frames: Annotated[str, Field(pattern=r"^\d+$")]
    aspect_ratio_bucketing: bool
    timestep_distribution: Literal["LOGIT_NORMAL", "UNIFORM", "SIGMOID"]
    train_dtype: Literal["BFLOAT_16"]
    transformer: OnePart
    text_encoder: OnePart
    text_encoder_2: OnePart
    layer_filter: str
    layer_filter_preset: str
    samples: list[None]
    concepts: Annotated[list[OneConcept], Field(min_length=1)]


# --- ai-toolkit, toolkit/config_modules.py: every class takes keywords and ignores those that it does not know


class ToolkitNetwork(Exact):
    """`NetworkConfig`."""

    type: Literal["lora", "lokr"]
    linear: int
    linear_alpha: int


class ToolkitSave(Exact):
    """`SaveConfig`."""

    dtype: Literal["float16", "bf16"]
    save_every: int
    max_step_saves_to_keep: int


class ToolkitData(Exact):
    """`DatasetConfig`: evenly spaced frames over the whole video are all of them, if it has `num_frames`."""

    folder_path: str
    caption_ext: str
    caption_dropout_rate: float
    num_frames: int
    shrink_video_to_frames: Literal[True]
    fps: int
    resolution: list[int]


class ToolkitTrain(Exact):
    """`TrainConfig`."""

    batch_size: int
    steps: int
    gradient_accumulation: int
    train_unet: bool
    train_text_encoder: bool
    gradient_checkpointing: bool
    noise_scheduler: Literal["flowmatch"]
    timestep_type: Literal["sigmoid", "linear", "weighted"]
    optimizer: str
    lr: float
    optimizer_params: dict[str, float]
    disable_sampling: bool
    dtype: Literal["bf16"]


class ToolkitModel(Exact):
    """`ModelConfig`."""

    name_or_path: str
    arch: Literal["wan21"]
    quantize_te: bool


class ToolkitProcess(Exact):
    """An element of `process`."""

    type: Literal["sd_trainer"]
    training_folder: str
    device: str
    network: ToolkitNetwork
    save: ToolkitSave
    datasets: Annotated[list[ToolkitData], Field(min_length=1)]
    train: ToolkitTrain
    model: ToolkitModel


class ToolkitJob(Exact):
    """`config`."""

    name: str
    process: Annotated[list[ToolkitProcess], Field(min_length=1)]


class Toolkit(Exact):
    """config.yaml."""

    job: Literal["extension"]
    config: ToolkitJob
    meta: dict[str, str]


# --- SimpleTuner, documentation/DATALOADER.md; simpletuner/helpers/data_backend/config


class TunerVideo(Exact):
    """`video` of a backend."""

    num_frames: int
    min_frames: int


class TunerVideos(Exact):
    """`ImageBackendConfig` of `dataset_type` video."""

    id: str
    type: Literal["local"]
    dataset_type: Literal["video"]
    instance_data_dir: str
    caption_strategy: Literal["textfile"]
    metadata_backend: Literal["discovery"]
    crop: Literal[False]
    resolution: int
    resolution_type: Literal["pixel_area"]
    cache_dir_vae: str
    repeats: int
    video: TunerVideo


class TunerTexts(Exact):
    """`TextEmbedBackendConfig`; one must be the default."""

    id: str
    type: Literal["local"]
    dataset_type: Literal["text_embeds"]
    default: Literal[True]
    cache_dir: str
    write_batch_size: int


TunerData = TypeAdapter(list[Annotated[TunerVideos | TunerTexts, Field(discriminator="dataset_type")]])


class Tuner(Exact):
    """config/clips/config.json: the options of simpletuner/helpers/configuration/cmd_args.py without dashes."""

    data_backend_config: str
    output_dir: str
    model_family: Literal["wan", "hunyuanvideo", "ltxvideo"]
    model_flavour: Literal["t2v-480p", "0.9.5"] | None = None
    pretrained_model_name_or_path: str
    model_type: Literal["lora"]
    lora_type: Literal["standard"]
    lora_rank: int
    base_model_precision: Literal["int8-torchao"]
    mixed_precision: Literal["bf16"]
    gradient_checkpointing: bool
    optimizer: Literal["adamw_bf16"]
    learning_rate: float
    lr_scheduler: Literal["constant_with_warmup"]
    lr_warmup_steps: int
    max_grad_norm: float
    max_train_steps: int
    num_train_epochs: int
    train_batch_size: int
    vae_batch_size: int
    minimum_image_size: int
    resolution: int
    resolution_type: Literal["pixel_area"]
    checkpoint_step_interval: int
    validation_disable: bool
    report_to: Literal["none"]
    seed: int


# --- DiffSynth-Studio, diffsynth/core/data/unified_dataset.py; VideoX-Fun, videox_fun/data/dataset_image_video.py


class SynthRow(Exact):
    """A clip of metadata.jsonl."""

    video: str
    prompt: Annotated[str, Field(min_length=1)]


class FunRow(Exact):
    """A clip of metadata.json."""

    file_path: str
    text: Annotated[str, Field(min_length=1)]
    type: Literal["video"]
    width: int
    height: int


# --- finetrainers 0.2.0, finetrainers/trainer/sft_trainer/trainer.py and finetrainers/data/dataset.py


class FinetrainersData(Exact):
    """An element of `datasets`; buckets are (frames, height, width)."""

    data_root: str
    dataset_type: Literal["video"]
    video_resolution_buckets: list[Triple]
    reshape_mode: Literal["bicubic", "center_crop", "random_crop"]
    remove_common_llm_caption_prefixes: Literal[False]


class Finetrainers(Exact):
    """training.json."""

    datasets: Annotated[list[FinetrainersData], Field(min_length=1)]


FILES: dict[str, dict[str, TypeAdapter[Any]]] = {
    "musubi-tuner": {"dataset.toml": TypeAdapter(Musubi)},
    "diffusion-pipe": {"dataset.toml": TypeAdapter(PipeData), "config.toml": TypeAdapter(Pipe)},
    "onetrainer": {"config.json": TypeAdapter(OneTrainer)},
    "ai-toolkit": {"config.yaml": TypeAdapter(Toolkit)},
    "simpletuner": {"multidatabackend.json": TunerData, "config/clips/config.json": TypeAdapter(Tuner)},
    "diffsynth": {"metadata.jsonl": TypeAdapter(list[SynthRow])},
    "finetrainers": {"training.json": TypeAdapter(Finetrainers)},
    "videox-fun": {"metadata.json": TypeAdapter(list[FunRow])},
}
"""Files of each trainer: what is there besides clips, captions and the command."""
