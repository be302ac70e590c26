#!/bin/bash
# A Dask scheduler and its workers as one SLURM job, which finds the scheduler by a file; the sweep runs in it:
#   sbatch dask-scheduler.sh my.toml /shared/results/mine
#SBATCH --job-name=lagsweep-dask
#SBATCH --ntasks=16
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=2G
#SBATCH --time=02:00:00
set -euo pipefail

spec=${1:?a spec} store=${2:?the folder of the result}
file=$(dirname "$store")/scheduler-${SLURM_JOB_ID:-local}.json
export NUMBA_NUM_THREADS=1
mkdir -p "$(dirname "$store")"
trap 'kill $(jobs -p) 2>/dev/null; rm -f "$file"' EXIT
dask scheduler --scheduler-file "$file" &
srun dask worker --scheduler-file "$file" --nthreads 1 --no-dashboard &
until [ -s "$file" ]; do sleep 1; done
address=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["address"])' "$file")
lagsweep run "$spec" --store "$store" --dask "$address" --quiet
