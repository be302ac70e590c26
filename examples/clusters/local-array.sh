#!/bin/bash
# The same array as processes of one machine, to try a spec before it goes to a cluster:
#   bash local-array.sh my.toml results/mine 4
set -euo pipefail

spec=${1:?a spec} store=${2:?the folder of the result} tasks=${3:-4}
running=()
for task in $(seq 1 "$tasks"); do
    lagsweep run "$spec" --store "$store" --task "$task/$tasks" --threads 1 --quiet &
    running+=($!)
done
for process in "${running[@]}"; do
    wait "$process"
done
lagsweep merge "$store" --quiet
