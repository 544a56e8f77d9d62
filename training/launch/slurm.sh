#!/bin/bash
# SLURM job: all phases of a training run, one launcher per node; requeues itself until the run is done.
#
#   sbatch training/launch/slurm.sh training/launch/8-gpus-ddp.yaml --data data/ --out run/ --recipe full
#   sbatch --nodes 2 training/launch/slurm.sh training/launch/2x8-gpus-fsdp2.yaml --data data/ --out run/ \
#       --recipe full --config training/launch/two-machines.toml
#
# The project folder, the data set, the run and ~/.cache/huggingface lie on a disk shared by the nodes. Ten minutes
# before the limit the batch shell gets SIGTERM and passes it on: the phase saves a state after the step under way,
# and the requeued job resumes from it. A run that fails by itself is not requeued.
#SBATCH --job-name=animegamer
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@600
#SBATCH --requeue
#SBATCH --open-mode=append

set -uo pipefail
config=$1
shift

export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=540  # seconds the launcher leaves the phase for its state, 30 by default
stopped= step=
trap 'stopped=yes; [[ $step ]] && kill -TERM "$step" 2>/dev/null' TERM
first_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

for phase in shot game adapt; do  # a finished phase ends at once
    # the rank is that of the node on which the launcher runs, so the inner shell reads it
    srun --kill-on-bad-exit=1 bash -c 'exec .venv/bin/accelerate launch --config_file "$1" \
        --machine_rank "$SLURM_NODEID" --main_process_ip "$2" -m flows.cli train "${@:3}"' \
        launcher "$config" "$first_node" "$phase" "$@" &
    step=$!
    [[ $stopped ]] && kill -TERM "$step" 2>/dev/null  # the signal came while no phase was there to get it
    wait "$step"
    code=$?
    while kill -0 "$step" 2>/dev/null; do  # the trap has ended `wait`
        wait "$step"
        code=$?
    done
    step=
    if [[ $stopped || $code -eq 143 ]]; then  # a launcher that got SIGTERM ends with a code of its own
        scontrol requeue "$SLURM_JOB_ID"
        exit 143
    fi
    ((code == 0)) || exit "$code"
done
