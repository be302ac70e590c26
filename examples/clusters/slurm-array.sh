#!/bin/bash
# One task of a SLURM job array: submit-slurm.sh gives it to sbatch, with the job that merges after it.
# A task that is killed or requeued goes on where it was: it is the same command.
#SBATCH --job-name=lagsweep
#SBATCH --array=1-16
#SBATCH --cpus-per-task=4
#SBATCH --mem=4G
#SBATCH --time=02:00:00
#SBATCH --requeue
#SBATCH --output=lagsweep-%A-%a.log
set -euo pipefail

: "${SPEC:=my.toml}" "${STORE:=results/mine}"
exec lagsweep run "$SPEC" --store "$STORE" --quiet \
    --task "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" \
    --threads "${SLURM_CPUS_PER_TASK:-1}"
