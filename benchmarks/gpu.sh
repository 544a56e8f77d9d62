#!/usr/bin/env bash
# Measurements on one GPU at full size, in steps of at most 8 minutes, with random weights: nothing is downloaded.
#
#   benchmarks/gpu.sh list                     the steps
#   benchmarks/gpu.sh joint-compiled-3         one step; it ends with OUT/STEP.json (default: OUT=gpu-results)
#   SIZE=tiny benchmarks/gpu.sh try            the same step at `tiny`, on a CPU too
#
# A machine without a package index needs torch 2.11 or later with its torchvision and Triton, a C compiler, and these
# wheels beside torch's own: accelerate, av, decord, diffusers, fsspec, huggingface-hub, jinja2, mistral-common, numpy,
# opencv-python-headless, peft, pillow, platformdirs, protobuf, psutil, pyarrow, pydantic, requests, rich, safetensors,
# scipy, sentencepiece, tokenizers, torchao==0.18.0, transformers, typer, webdataset, and what they depend on: `pip
# download` them by constraints.txt, then `pip install --no-index`.
# The step `joint-*` is phase a's joint training, `game-*` phase b; a number is the micro-batch. `world` is 7 minutes of
# the world in miniature, with all packages of constraints.txt: call it until it prints its tables. Its folder,
# `miniature`, must stay between the calls; its finished networks and figures are in OUT/world each time.
set -euo pipefail
cd "$(dirname "$0")/.."
OUT=${OUT:-gpu-results} SIZE=${SIZE:-full} PYTHON=${PYTHON:-python}
[ -x .venv/bin/python ] && PYTHON=$PWD/.venv/bin/python
export PYTHONPATH=$PWD

training=("$PYTHON" -m benchmarks.training --recipe "$SIZE" --here --phase)
playing=("$PYTHON" -m benchmarks.model --json --size "$SIZE")
trying=("$PYTHON" -m flows.cli train all --data not-read --out not-written --try --recipe)
small=card24
[ "$SIZE" = full ] || small=$SIZE

STEPS="matmul encode
joint-plain-1 joint-plain-3 joint-compiled-3 warm-up-compiled-3 adapt-compiled-3
game-plain-2 game-compiled-4 game-packed-2 game-packed-3 game-packed-plain-2
try try-small
play-plain-50 play-compiled-50 play-offloaded-50 play-plain-10 play-compiled-10 play-tiled-10 play-int8-10 play-unguided-4
world"

command_of() {
    case $1 in
        world) command=(bash -c "$world" "$PYTHON" "$OUT/world") ;;
        matmul | encode) command=("$PYTHON" -c "${programs[$1]}") ;;
        try) command=("${trying[@]}" "$SIZE") ;;
        try-small) command=("${trying[@]}" "$small") ;;
        game-packed-plain-*) command=("${training[@]}" game --packed --plain --micro-batch "${1##*-}") ;;
        game-packed-*) command=("${training[@]}" game --packed --micro-batch "${1##*-}") ;;
        game-plain-*) command=("${training[@]}" game --no-packed --plain --micro-batch "${1##*-}") ;;
        game-compiled-*) command=("${training[@]}" game --no-packed --micro-batch "${1##*-}") ;;
        *-plain-[13]) command=("${training[@]}" "${1%-plain-*}" --plain --micro-batch "${1##*-}") ;;
        *-compiled-[13]) command=("${training[@]}" "${1%-compiled-*}" --micro-batch "${1##*-}") ;;
        play-unguided-*) command=("${playing[@]}" --way plain --guidance 1 --steps "${1##*-}") ;;
        play-*) command=("${playing[@]}" --way "$(cut -d- -f2 <<<"$1")" --steps "${1##*-}") ;;
    esac
}

declare -A programs
programs[matmul]='
import json, time, torch
size, device = (8192, "cuda") if torch.cuda.is_available() else (512, "cpu")
one = torch.randn(size, size, device=device, dtype=torch.bfloat16)
wait = torch.cuda.synchronize if device == "cuda" else lambda: None
for _ in range(5): one @ one
wait(); begun = time.perf_counter()
for _ in range(20): one @ one
wait(); print(json.dumps({"size": size, "tflops": 20 * 2 * size**3 / (time.perf_counter() - begun) / 1e12}))'
programs[encode]='
import json, os, time, torch
from models.config import CONFIGS
from models.frames import encode_frames
from models.untrained import random_base
config, cuda = CONFIGS[os.environ["SIZE"]](), torch.cuda.is_available()
shot, device = config.shot_decoder, "cuda" if cuda else "cpu"
network = random_base("autoencoder", config, device).to(device, torch.float16 if cuda else torch.float32).eval()
frames = torch.randint(0, 256, (2, shot.frames, shot.height, shot.width, 3), dtype=torch.uint8)
with torch.no_grad():
    for _ in range(4):
        begun = time.perf_counter()
        encode_frames(network, frames).mean_BTCHW.cpu()
print(json.dumps({"seconds_a_clip": (time.perf_counter() - begun) / len(frames)}))'
export SIZE
world='mkdir -p "$1"
timeout 420 "$0" -m examples.miniature all --out miniature || [ $? = 124 ] || exit 1
"$0" -m examples.miniature keep --out miniature && cp -r examples/miniature/packed/networks "$1"
cp miniature/*.json miniature/tables.md "$1" 2>/dev/null || true'

[ "${1:-list}" = list ] && { tr ' ' '\n' <<<"$STEPS"; exit; }
grep -qxF -- "$1" <(tr ' ' '\n' <<<"$STEPS") || { echo "no step $1: see benchmarks/gpu.sh list" >&2; exit 2; }
# A temporary checkpoint has 20 GB, and a step that runs out of time leaves it. Later steps take what is compiled.
mkdir -p "$OUT/$1.tmp"
TMPDIR=$(realpath "$OUT/$1.tmp") TORCHINDUCTOR_CACHE_DIR=$(realpath "$OUT")/compiled
export TMPDIR TORCHINDUCTOR_CACHE_DIR
trap 'rm -rf "$TMPDIR"' EXIT
command_of "$1"
begun=$SECONDS code=0
timeout -k 10 480 "${command[@]}" >"$OUT/$1.out" 2>"$OUT/$1.err" || code=$?
"$PYTHON" - "$1" "$code" "$((SECONDS - begun))" "$OUT/$1" "${command[@]:1}" <<'PYTHON_END'
import json, sys
import torch

step, code, seconds, path, *words = sys.argv[1:]
lines = open(f"{path}.out").read().splitlines()
try:
    found = json.loads(lines[-1])
except (IndexError, ValueError):
    found = lines
device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
note = {"step": step, "exit_code": int(code), "seconds": int(seconds), "device": device, "torch": torch.__version__}
errors = open(f"{path}.err").read()[-2000:] if int(code) else ""
with open(f"{path}.json", "w") as file:
    json.dump({**note, "command": words if len(words) > 2 else [], "found": found, "errors": errors}, file, indent=2)
PYTHON_END
cat "$OUT/$1.json"
exit "$code"
