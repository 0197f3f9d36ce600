#!/usr/bin/env bash
# What `make install` puts in place works from there, and `make uninstall` removes all
# of it: the unit holds for systemd, README.md's program is built with the pkg-config
# file, shared and static, and runs on the installed daemon's simulated device.
#
#   check_install.sh MAKE CC BUILD
set -u
make=$1 cc=$2 build=$3
cd "$(dirname "$0")/../.." || exit 1
scratch=$(mktemp -d "${TMPDIR:-/tmp}/cubiemem-install.XXXXXX") || exit 1
daemon=
trap '[ -n "$daemon" ] && kill "$daemon" && wait "$daemon"; rm -rf "$scratch"' EXIT
prefix=$scratch/usr
failed=0

fail() {
    echo "check-install: $*" >&2
    failed=1
}

# Another folder's copies: this one's keep their places.
"$make" -s BUILD="$build" prefix="$prefix" install >"$scratch/log" 2>&1 || {
    cat "$scratch/log" >&2
    exit 1
}

unit=$prefix/lib/systemd/system/cubiememd@.service
if command -v systemd-analyze >/dev/null; then
    cp "$unit" "$scratch/cubiememd@GPU-1.service"
    systemd-analyze verify "$scratch/cubiememd@GPU-1.service" >"$scratch/log" 2>&1 ||
        fail "the unit: $(cat "$scratch/log")"
    [ ! -s "$scratch/log" ] || fail "the unit: $(cat "$scratch/log")"
else
    echo "check-install: no systemd-analyze here: the unit is not looked at" >&2
fi
documentation=$(sed -n 's|^Documentation=file:||p' "$unit")
[ -f "$documentation" ] || fail "the unit names a documentation that is not there: '$documentation'"

# The program that README.md shows.
awk '/^```c$/ { on = 1; next } /^```$/ { if (on) exit } on' README.md >"$scratch/solver.c"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig CUBIEMEM_RUNDIR=$scratch/run
unset CUBIEMEM_SOCKET CUBIEMEM_GPU CUBIEMEM_SIM
mkdir "$CUBIEMEM_RUNDIR"
# shellcheck disable=SC2046
"$cc" -Wall -Werror -o "$scratch/shared" "$scratch/solver.c" $(pkg-config --cflags --libs cubiemem) ||
    fail "README.md's program is not built with $(pkg-config --cflags --libs cubiemem)"
# shellcheck disable=SC2046
"$cc" -Wall -Werror -o "$scratch/static" "$scratch/solver.c" $(pkg-config --cflags cubiemem) \
    "$prefix/lib/libcubiemem.a" $(pkg-config --libs libprotobuf-c) -ldl -pthread ||
    fail "README.md's program is not built with the static library"

"$prefix/sbin/cubiememd" --device sim 2>"$scratch/log" &
daemon=$!
for _ in $(seq 200); do
    "$prefix/bin/cubiememctl" ping >/dev/null 2>&1 && break
    sleep 0.05
done
"$prefix/bin/cubiememctl" ping >/dev/null || fail "the installed daemon: $(cat "$scratch/log")"
for kind in shared static; do
    # The simulated driver is looked for beside the library or where CUBIEMEM_SIM says.
    said=$(CUBIEMEM_SIM=$prefix/lib/libcubiemem-sim.so LD_LIBRARY_PATH=$prefix/lib \
        timeout 60 "$scratch/$kind" 2>&1)
    [[ $said == "5 chunks of 223696 runs at "* ]] || fail "README.md's program ($kind) said: $said"
done
kill "$daemon" && wait "$daemon"
status=$?
daemon=
[ "$status" -eq 0 ] || fail "the installed daemon ended with status $status"

"$make" -s BUILD="$build" prefix="$prefix" uninstall >"$scratch/log" 2>&1 || fail "$(cat "$scratch/log")"
left=$(find "$prefix" ! -type d)
[ -z "$left" ] || fail "uninstall leaves $left"

[ "$failed" -eq 0 ] || exit 1
echo "installed, verified, linked with, run and removed"
