#!/bin/bash
# SLURM job: all phases of a training run on its nodes; requeues itself until the run is done.
#
#   sbatch training/launch/slurm.sh training/launch/8-gpus-ddp.yaml --data data/ --out run/ --recipe full
#   sbatch --nodes 2 training/launch/slurm.sh training/launch/2x8-gpus-ddp.yaml --data data/ --out run/ \
#       --recipe full --config training/launch/two-machines.toml
#
# The project folder, the dataset, the run and ~/.cache/huggingface lie on a disk shared by the nodes. Ten minutes
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

stopped= training=
trap 'stopped=yes; [[ $training ]] && kill -TERM "$training" 2>/dev/null' TERM
first_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

# the rank is that of the node on which the command runs, so the inner shell reads it
srun --kill-on-bad-exit=1 bash -c 'exec .venv/bin/animegamer train all --accelerate "$1" \
    --machine-rank "$SLURM_NODEID" --main-address "$2" "${@:3}"' animegamer "$config" "$first_node" "$@" &
training=$!
[[ $stopped ]] && kill -TERM "$training" 2>/dev/null  # the signal came while no process was there to get it
wait "$training"
code=$?
while kill -0 "$training" 2>/dev/null; do  # the trap has ended `wait`
    wait "$training"
    code=$?
done
if [[ $stopped || $code -eq 143 ]]; then
    scontrol requeue "$SLURM_JOB_ID"
    exit 143
fi
exit "$code"
