"""Commands that a `start.sh` gives, and the options that the trainers' scripts take.

The script is run by the shell with programs that write down their arguments, so that quoting is that of a real start.
Options are from the sources that `trainers.py` names, parsed as strictly as the trainers do.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAMS = ("accelerate", "deepspeed", "python", "simpletuner", "torchrun", "uv")
WEIGHTS = ("DIT", "VAE", "T5", "TEXT_ENCODER1", "TEXT_ENCODER2")

# A word ending in = takes a value, one ending in + several, the others none.
_MUSUBI = """
    dataset_config= dit= vae= sdpa mixed_precision= fp8_base optimizer_type= learning_rate= gradient_checkpointing
    max_data_loader_n_workers= persistent_data_loader_workers network_module= network_dim= timestep_sampling=
    discrete_flow_shift= max_train_epochs= save_every_n_epochs= seed= output_dir= output_name=
"""
_VIDEOX = """
    target_name= train_mode= pretrained_model_name_or_path= train_data_dir= train_data_meta= image_sample_size=
    video_sample_size= token_sample_size= video_sample_stride= video_sample_n_frames= train_batch_size= video_repeat=
    gradient_accumulation_steps= dataloader_num_workers= num_train_epochs= checkpointing_steps= learning_rate= seed=
    output_dir= gradient_checkpointing mixed_precision= adam_weight_decay= adam_epsilon= vae_mini_batch= max_grad_norm=
    enable_bucket rank= network_alpha= use_peft_lora low_vram uniform_sampling
"""
SCRIPTS = {
    "src/musubi_tuner/wan_cache_latents.py": "dataset_config= vae=",
    "src/musubi_tuner/wan_cache_text_encoder_outputs.py": "dataset_config= t5= batch_size=",
    "src/musubi_tuner/wan_train_network.py": f"{_MUSUBI} task=",
    "src/musubi_tuner/cache_latents.py": "dataset_config= vae= vae_chunk_size= vae_tiling",
    "src/musubi_tuner/cache_text_encoder_outputs.py": "dataset_config= text_encoder1= text_encoder2= batch_size=",
    "src/musubi_tuner/hv_train_network.py": _MUSUBI,
    "examples/wanvideo/model_training/train.py": """
        dataset_base_path= dataset_metadata_path= data_file_keys= height= width= num_frames= dataset_repeat=
        model_id_with_origin_paths= learning_rate= num_epochs= remove_prefix_in_ckpt= output_path= lora_base_model=
        lora_target_modules= lora_rank=
    """,
    "examples/ltx2/model_training/train.py": """
        dataset_base_path= dataset_metadata_path= data_file_keys= extra_inputs= height= width= num_frames= frame_rate=
        dataset_repeat= model_id_with_origin_paths= learning_rate= num_epochs= remove_prefix_in_ckpt= output_path=
        lora_base_model= lora_target_modules= lora_rank= use_gradient_checkpointing task=
    """,
    "uv scripts/process_dataset.py": "resolution-buckets= model-path= text-encoder-path= output-dir= skip-audio",
    "scripts/wan2.1/train_lora.py": f"{_VIDEOX} config_path=",
    "scripts/cogvideox_fun/train_lora.py": _VIDEOX,
    "scripts/train.py": "config-path=",  # OneTrainer
    "uv scripts/train.py": "",  # ltx-trainer
    "run.py": "",  # ai-toolkit: the configuration is its only argument
}
TRAIN = {  # two trainers have a train.py at their root
    "deepspeed": "deepspeed config=",
    "torchrun": """
        parallel_backend= pp_degree= dp_degree= dp_shards= cp_degree= tp_degree= model_name=
        pretrained_model_name_or_path= target_modules+ dataset_config= dataset_shuffle_buffer_size=
        dataloader_num_workers= flow_weighting_scheme= training_type= seed= batch_size= train_steps= rank= lora_alpha=
        gradient_accumulation_steps= gradient_checkpointing checkpointing_steps= enable_slicing enable_tiling optimizer=
        lr= output_dir=
    """,
}


def started(script: Path, scratch: Path) -> list[list[str]]:
    """Return the commands that a start.sh gives, as lists of words."""
    scratch.mkdir()
    record, log = scratch / "record.py", scratch / "commands.jsonl"
    record.write_text(
        f"import json, sys\nwith open({str(log)!r}, 'a') as log:\n    log.write(json.dumps(sys.argv[1:]) + '\\n')\n"
    )
    for name in PROGRAMS:
        (scratch / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" "{record}" {name} "$@"\n')
        (scratch / name).chmod(0o755)
    shell = shutil.which("sh")
    assert shell
    environment = {"PATH": f"{scratch}{os.pathsep}{os.environ['PATH']}"} | {name: f"{name} file" for name in WEIGHTS}
    subprocess.run([shell, str(script)], cwd=scratch, env=environment, timeout=60, check=True)
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def options_of(command: list[str]) -> argparse.Namespace:
    """Return the options of the script that a command starts; one that the script does not take ends the test."""
    name = next((word for word in command if word.endswith(".py")), "")
    if not name:
        assert command == ["simpletuner", "train", "env=clips"]
        return argparse.Namespace()
    name = f"uv {name}" if command[0] == "uv" else name
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for word in (TRAIN[command[0]] if name == "train.py" else SCRIPTS[name]).split():
        option = f"--{word.rstrip('=+')}"
        if word.endswith("="):
            parser.add_argument(option)
        elif word.endswith("+"):
            parser.add_argument(option, nargs="+")
        else:
            parser.add_argument(option, action="store_true")
    if name == "run.py" or name.startswith("uv "):
        parser.add_argument("files", nargs="+")
    return parser.parse_args(command[command.index(name.removeprefix("uv ")) + 1 :])
