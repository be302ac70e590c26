#!/bin/bash
# Submit a sweep as a job array, and a job that joins its parts when every task has ended well:
#   bash submit-slurm.sh my.toml /shared/results/mine 16
set -euo pipefail

export SPEC=${1:?a spec} STORE=${2:?the folder of the result} TASKS=${3:-16}
here=$(cd "$(dirname "$0")" && pwd)
array=$(sbatch --parsable --export=ALL --array="1-$TASKS" "$here/slurm-array.sh")
sbatch --job-name=lagsweep-merge --dependency="afterok:${array%%;*}" --export=ALL --mem=4G --time=01:00:00 \
    --wrap 'lagsweep merge "$STORE" --quiet'
