"""Keys of each trainer's files: most trainers ignore a key that they do not know, so a misspelt one shows only late.

From the sources that `pipeline/publish/export/trainers.py` names. A line has the path of a table and its keys; with `?`
a key may be left out, with `=a|b` it has one of these values. OneTrainer writes numbers as text, `:str`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

FILES: dict[str, dict[str, str]] = {
    "musubi-tuner": {
        "dataset.toml": """
            .: general datasets
            .general: caption_extension? batch_size? num_repeats? resolution? enable_bucket? bucket_no_upscale?
            .datasets[]: video_directory target_frames cache_directory frame_extraction=head|chunk|slide|uniform|full
            .datasets[]: caption_extension? batch_size? num_repeats? resolution? enable_bucket? max_frames?
            .datasets[]: frame_stride? frame_sample?
        """,  # no source_fps, which would resample
    },
    "diffusion-pipe": {
        "dataset.toml": """
            .: size_buckets directory
            .directory[]: path num_repeats? cache_shuffle_num? skip_empty_caption?
        """,
        "config.toml": """
            .: output_dir dataset epochs max_steps? micro_batch_size_per_gpu pipeline_stages gradient_clipping
            .: gradient_accumulation_steps warmup_steps blocks_to_swap? save_every_n_epochs checkpoint_every_n_minutes
            .: activation_checkpointing=True|unsloth partition_method=parameters|manual save_dtype=bfloat16
            .: caching_batch_size
            .: map_num_proc? steps_per_print video_clip_mode=single_beginning|single_middle|multiple_overlapping
            .: model adapter optimizer
            .model: type=wan|hunyuan-video|minimax_h3 ckpt_path? transformer_path? llm_path? dtype=bfloat16
            .model: transformer_dtype=float8? timestep_sample_method=logit_normal|uniform diffusion_model? vae?
            .model: audio_vae? text_encoders? shift? cfg?
            .model.text_encoders[]: path? type=minimax?
            .adapter: type=lora rank dtype=bfloat16 init_from_existing?
            .optimizer: type=adamw_optimi|AdamW8bitKahan|Prodigy|automagic lr betas weight_decay eps
        """,
    },
    "onetrainer": {
        "config.json": """
            .: __version=11 model_type=HUNYUAN_VIDEO base_model_name training_method=LORA workspace_dir cache_dir
            .: output_model_destination output_model_format=COMFY_LORA batch_size learning_rate resolution:str
            .: frames:str aspect_ratio_bucketing timestep_distribution=LOGIT_NORMAL|UNIFORM|SIGMOID
            .: train_dtype=BFLOAT_16 transformer text_encoder text_encoder_2 layer_filter layer_filter_preset samples
            .: concepts
            .transformer: train weight_dtype=FLOAT_8|BFLOAT_16|NFLOAT_4|INT_8 offload_fraction?
            .text_encoder: train weight_dtype=FLOAT_8|BFLOAT_16|NFLOAT_4|INT_8 offload_fraction?
            .text_encoder_2: train weight_dtype=FLOAT_8|BFLOAT_16|NFLOAT_4|INT_8 offload_fraction?
            .concepts[]: name path enabled include_subdirectories seed image text
            .concepts[].image: enable_crop_jitter=False enable_random_flip=False
            .concepts[].text: prompt_source=sample enable_tag_shuffling
        """,
    },
    "ai-toolkit": {
        "config.yaml": """
            .: job=extension config meta
            .config: name process
            .config.process[]: type=sd_trainer training_folder device network save datasets train model
            .config.process[].network: type=lora|lokr linear linear_alpha
            .config.process[].save: dtype=float16|bf16 save_every max_step_saves_to_keep
            .config.process[].datasets[]: folder_path caption_ext caption_dropout_rate num_frames fps resolution
            .config.process[].datasets[]: shrink_video_to_frames=True
            .config.process[].train: batch_size steps gradient_accumulation train_unet train_text_encoder optimizer lr
            .config.process[].train: gradient_checkpointing noise_scheduler=flowmatch disable_sampling dtype=bf16
            .config.process[].train: timestep_type=sigmoid|linear|weighted optimizer_params
            .config.process[].train.optimizer_params: weight_decay
            .config.process[].model: name_or_path arch=wan21 quantize_te
            .meta: name version
        """,
    },
    "simpletuner": {
        "multidatabackend.json": """
            .[]: id type=local dataset_type=video|text_embeds instance_data_dir? caption_strategy=textfile?
            .[]: metadata_backend=discovery? crop=False? resolution? resolution_type=pixel_area? cache_dir_vae? repeats?
            .[]: video? default=True? cache_dir? write_batch_size?
            .[].video: num_frames min_frames
        """,
        "config/clips/config.json": """
            .: data_backend_config output_dir model_family=wan|hunyuanvideo|ltxvideo model_flavour=t2v-480p|0.9.5?
            .: pretrained_model_name_or_path model_type=lora lora_type=standard lora_rank mixed_precision=bf16
            .: base_model_precision=int8-torchao gradient_checkpointing optimizer=adamw_bf16 learning_rate
            .: lr_scheduler=constant_with_warmup lr_warmup_steps max_grad_norm max_train_steps num_train_epochs
            .: train_batch_size vae_batch_size minimum_image_size resolution resolution_type=pixel_area
            .: checkpoint_step_interval validation_disable report_to=none seed
        """,
    },
    "diffsynth": {"metadata.jsonl": ".[]: video prompt input_audio?"},
    "finetrainers": {
        "training.json": """
            .: datasets
            .datasets[]: data_root dataset_type=video video_resolution_buckets remove_common_llm_caption_prefixes=False
            .datasets[]: reshape_mode=bicubic|center_crop|random_crop
        """,
    },
    "videox-fun": {"metadata.json": ".[]: file_path text type=video width height"},
    "ltx-trainer": {
        "metadata.jsonl": ".[]: caption video",
        "config.yaml": """
            .: model lora training_strategy optimization acceleration data validation checkpoints seed output_dir
            .model: model_path text_encoder_path training_mode=lora|full
            .lora: rank alpha dropout target_modules
            .training_strategy: name=flexible video audio?
            .training_strategy.video: is_generated=True latents_dir=latents
            .training_strategy.audio: is_generated=True? latents_dir=audio_latents?
            .optimization: learning_rate steps batch_size enable_gradient_checkpointing
            .acceleration: mixed_precision_mode=no|fp16|bf16
            .data: preprocessed_data_root
            .validation: video_dims frame_rate interval
            .checkpoints: interval keep_last_n
        """,
    },
}
"""Files beside clips, captions and the command, by trainer."""


def faults(grammar: str, value: Any) -> list[str]:
    """Return the keys of a file that its trainer does not know or misses, and values that it does not take."""
    known: dict[str, dict[str, str]] = {}
    for line in grammar.strip().splitlines():
        place, _, words = line.strip().partition(":")
        known.setdefault(place, {}).update({word.rstrip("?").partition("=")[0]: word for word in words.split()})
    known = {place: {key.removesuffix(":str"): word for key, word in keys.items()} for place, keys in known.items()}
    found, met = [], set()
    for place, table in _tables(value, "."):
        met.add(place)
        words = known.get(place, {})
        found += [f"{place}{key} is unknown" for key in table.keys() - words.keys()]
        found += [f"{place}{key} is missing" for key in words.keys() - table.keys() if not words[key].endswith("?")]
        found += [
            f"{place}{key} is {table[key]!r}"
            for key in table.keys() & words.keys()
            if _is_wrong(words[key], table[key])
        ]
    needed = {place for place, words in known.items() if not all(word.endswith("?") for word in words.values())}
    return found + [f"{place} is missing" for place in needed - met]


def _is_wrong(word: str, value: Any) -> bool:
    allowed = word.rstrip("?").partition("=")[2]
    text = word.endswith(":str") and not (isinstance(value, str) and value.isdigit())
    return text or bool(allowed and str(value) not in allowed.split("|")) or value == ""


def _tables(value: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        yield place, value
        for key, one in value.items():
            yield from _tables(one, f"{place.rstrip('.')}.{key}")
    elif isinstance(value, list):
        for one in value:
            yield from _tables(one, f"{place}[]")
