#!/usr/bin/env bash
# The example through the daemon: the same fits, to the last bit, on a device where
# the batch fits whole, where it is cut into many chunks, and without any daemon.
set -u
cd "$(dirname "$0")/../.." || exit 1
stage=${CUBIEMEM_STAGE:-$PWD/build/stage}
data=${CUBIEMEM_TEST_DATA:-tests/data}/theoph.csv
scratch=$(mktemp -d) || exit 1
daemon=
trap '[ -n "$daemon" ] && kill "$daemon" && wait "$daemon"; rm -rf "$scratch"' EXIT

die() {
    echo "$*" >&2
    exit 1
}

# fit DEVICE OUTPUT ARGUMENT...: subjects 3 and 9, 125,000 runs a batch (11.4 MiB)
fit() {
    local device=$1 output=$2 status
    shift 2
    "$stage/cubiememd" --device "$device" --socket "$scratch/socket" &
    daemon=$!
    for _ in $(seq 200); do
        "$stage/cubiememctl" -s "$scratch/socket" ping >/dev/null 2>&1 && break
        sleep 0.05
    done
    "$stage/pkfit" --data "$data" --subjects 3,9 --points 50 --exact --quiet \
        --socket "$scratch/socket" "$@" >"$scratch/$output" || die "pkfit failed on $device"
    kill "$daemon"
    wait "$daemon"
    status=$?
    daemon=
    [ "$status" -eq 0 ] || die "cubiememd ended with status $status"
}

chunks() {
    cut -d' ' -f6 "$scratch/$1" | sort -nu | tr '\n' ' '
}

fit sim:64MiB whole
fit sim:64MiB cut --proportion 0.1
fit sim:16MiB cut-more --proportion 0.25
"$stage/pkfit" --data "$data" --subjects 3,9 --points 50 --exact --quiet --no-daemon \
    >"$scratch/plain" || die "pkfit failed without a daemon"

[ "$(chunks whole)" = "1 " ] || die "the whole batch took $(chunks whole)chunks"
[ "$(chunks cut)" = "3 " ] || die "in 10 % of 64 MiB it took $(chunks cut)chunks"
[ "$(chunks cut-more)" = "6 " ] || die "in 25 % of 16 MiB it took $(chunks cut-more)chunks"
for other in cut cut-more plain; do
    cmp <(cut -d' ' -f1-5 "$scratch/whole") <(cut -d' ' -f1-5 "$scratch/$other") ||
        die "the fits of 'whole' and '$other' differ"
done

# A time to wait is finite and not negative (37).
for seconds in nan inf -inf -1 1e300 '' 5x; do
    "$stage/pkfit" --data "$data" --socket "$scratch/none" --wait "$seconds" 2>"$scratch/why"
    status=$?
    [ "$status" -eq 2 ] || die "pkfit --wait '$seconds' ended with status $status"
    grep -q -- '--wait' "$scratch/why" || die "pkfit --wait '$seconds' said: $(cat "$scratch/why")"
done
