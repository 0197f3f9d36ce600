#!/usr/bin/env bash
# Daemon and client under MPS, with a control daemon and a pipe directory of our own.
#
#   gpu_mps.sh STAGE      DEVICE says on what; skipped without a GPU or MPS
set -u
stage=$1
device=${DEVICE:-cuda:0}
case $device in sim*) echo "skipped: the simulated device has no MPS"; exit 77 ;; esac
command -v nvidia-cuda-mps-control >/dev/null || {
    echo "skipped: no nvidia-cuda-mps-control here"
    exit 77
}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/cubiemem-mps.XXXXXX") || exit 1
export CUDA_MPS_PIPE_DIRECTORY=$scratch/pipe CUDA_MPS_LOG_DIRECTORY=$scratch/log
mkdir "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
control=
clean_up() {
    [ -n "$control" ] && echo quit | timeout 20 nvidia-cuda-mps-control >/dev/null 2>&1
    rm -rf "$scratch"
}
trap clean_up EXIT

if ! nvidia-cuda-mps-control -d >"$scratch/control" 2>&1; then
    echo "skipped: MPS does not start here: $(head -n 1 "$scratch/control")"
    exit 77
fi
control=1
"$stage/gpu_round_trip"
status=$?
# An MPS server was started if, and only if, our client went through it.
servers=$(echo get_server_list | timeout 20 nvidia-cuda-mps-control 2>/dev/null)
echo "MPS servers: ${servers:-none}"
if [ "$status" -ne 0 ]; then
    cat "$CUDA_MPS_LOG_DIRECTORY"/*.log 2>/dev/null | tail -n 20
    exit "$status"
fi
[ -n "$servers" ] || {
    echo "the client did not go through MPS"
    exit 1
}
