#!/usr/bin/env bash
# The example gives the same fits to 6 digits as a CUDA kernel and on the processor.
#
#   gpu_pkfit.sh STAGE      DEVICE says on what
#
# Compares ke, ka, Cl and ss of two subjects fitted on DEVICE and on the simulated
# device, of the grid's full size.
set -u
stage=$1
device=${DEVICE:-cuda:0}
data=${CUBIEMEM_TEST_DATA:-$(cd "$(dirname "$0")/.." && pwd)/data}/theoph.csv
[ -x "$stage/pkfit" ] || { echo "skipped: no pkfit in $stage"; exit 77; }
[ -r "$data" ] || { echo "skipped: no $data"; exit 77; }
scratch=$(mktemp -d "${TMPDIR:-/tmp}/cubiemem-fit.XXXXXX") || exit 1
daemon=
trap '[ -n "$daemon" ] && kill "$daemon" && wait "$daemon"; rm -rf "$scratch"' EXIT

die() {
    echo "FAILED: $*" >&2
    sed 's/^/    cubiememd: /' "$scratch/log" >&2
    exit 1
}

# fit DEVICE OUTPUT
fit() {
    "$stage/cubiememd" --device "$1" --socket "$scratch/socket" >"$scratch/log" 2>&1 &
    daemon=$!
    for _ in $(seq 600); do
        "$stage/cubiememctl" -s "$scratch/socket" ping >/dev/null 2>&1 && break
        kill -0 "$daemon" 2>/dev/null || die "cubiememd --device $1 did not start"
        sleep 0.05
    done
    "$stage/pkfit" --data "$data" --subjects 3,9 --points 100 --exact --quiet \
        --socket "$scratch/socket" >"$scratch/$2" || die "pkfit failed on $1"
    kill "$daemon"
    wait "$daemon" || die "cubiememd --device $1 ended with status $? at SIGTERM"
    daemon=
}

fit "$device" there
fit sim:256MiB here
paste -d' ' "$scratch/there" "$scratch/here" | awk '
    function off(a, b) { return a == b ? 0 : (a > b ? a - b : b - a) / (b < 0 ? -b : b) }
    {
        printf "subject %d: there %.9g %.9g %.9g %.9g, here %.9g %.9g %.9g %.9g\n",
            $1, $2, $3, $4, $5, $9, $10, $11, $12
        if ($1 != $8) { print "FAILED: other subjects"; failed = 1 }
        for (i = 2; i <= 5; i++) {
            if (off($i, $(i + 7)) > 5e-7) { print "FAILED: they differ in column " i; failed = 1 }
        }
    }
    END { exit failed || NR != 2 }'
