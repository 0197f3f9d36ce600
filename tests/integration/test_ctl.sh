#!/usr/bin/env bash
# cubiememctl against a daemon: exit statuses, JSON that is JSON, and what somebody
# is told who may not connect.
set -u
cd "$(dirname "$0")/../.." || exit 1
stage=${CUBIEMEM_STAGE:-$PWD/build/stage}
scratch=$(mktemp -d) || exit 1
chmod 755 "$scratch"
daemon=
trap '[ -n "$daemon" ] && kill "$daemon" && wait "$daemon"; rm -rf "$scratch"' EXIT
unset CUBIEMEM_SOCKET CUBIEMEM_GPU XDG_RUNTIME_DIR
export CUBIEMEM_RUNDIR=$scratch
failed=0

# expect STATUS ARGUMENT...: run the tool, keep what it says
expect() {
    local wanted=$1 status
    shift
    "$stage/cubiememctl" "$@" >"$scratch/out" 2>"$scratch/err"
    status=$?
    if [ "$status" -ne "$wanted" ]; then
        echo "cubiememctl $*: status $status, not $wanted" >&2
        sed 's/^/    /' "$scratch/out" "$scratch/err" >&2
        failed=1
    fi
}

says() { # FILE WORDS
    grep -qF -- "$2" "$scratch/$1" && return
    echo "'$2' is not in: $(cat "$scratch/$1")" >&2
    failed=1
}

is_json() {
    python3 -c 'import json, sys; json.load(sys.stdin)' <"$scratch/out" && return
    echo "no JSON: $(cat "$scratch/out")" >&2
    failed=1
}

# without a daemon
expect 3 ping
expect 3 status
expect 3 -s "$scratch/none.sock" status
expect 0 version
says out "cubiememctl 0."
expect 0 --help
says out set-limit
expect 0 set-limit --help
says out "--gid G"
expect 0 drain --help
says out "--off"
expect 2 ping now
says err "usage: cubiememctl ping"
for bad in nan inf -1 1e300 0 x; do # CASES 37
    expect 2 --timeout $bad ping
    says err "--timeout $bad"
done
expect 2
expect 2 no-such-verb
expect 2 status surplus
expect 2 --name x status
expect 2 set-mode
expect 2 set-mode sometimes
expect 2 set-proportion solver 1.5
expect 2 set-proportion solver nan
expect 2 set-limit 1GiB
expect 2 set-limit --name a --daemon 1GiB
expect 2 set-limit --uid -5 1GiB
expect 2 set-limit --daemon 101%
expect 2 set-limit --daemon 16GB4

"$stage/cubiememd" --device sim:64MiB --mode active &
daemon=$!
for _ in $(seq 200); do
    "$stage/cubiememctl" ping >/dev/null 2>&1 && break
    sleep 0.05
done

expect 0 ping
expect 0 status
says out "64 MiB"
says out "no clients"
for verb in status clients instances groups ping version; do # CASES 43
    expect 0 $verb --json
    is_json
    expect 0 --json $verb
    is_json
done
expect 0 instances
expect 0 groups
expect 0 set-mode passive
says out "limits revision"
expect 0 status
says out "mode passive"
expect 0 set-mode active --json
is_json
expect 0 set-limit --name nobody 1GiB
expect 0 set-limit --name nobody none
expect 5 set-proportion nobody 0.5
says err "no client has an instance 'nobody'"
expect 5 set-proportion 12345/nobody auto
says err "there is no client 12345"

# CASES 36: who may not connect is told whose the socket is, and waits for nothing
socket=$(echo "$scratch"/*.sock)
as_stranger=()
if [ "$(id -u)" -eq 0 ]; then
    as_stranger=(setpriv --reuid 65534 --regid 65534 --clear-groups)
else
    chmod 000 "$socket"
fi
"${as_stranger[@]}" "$stage/cubiememctl" -s "$socket" ping >"$scratch/out" 2>"$scratch/err"
status=$?
[ $status -eq 4 ] || { echo "status $status, not 4, without the right" >&2; failed=1; }
says err "permission denied"
says err "$socket"
says err "group $(stat -c %G "$socket")"
says err "--socket-group"
if [ "$(id -u)" -eq 0 ]; then
    chmod 660 "$socket"
    "${as_stranger[@]}" "$stage/cubiememctl" -s "$socket" ping >"$scratch/out" 2>"$scratch/err"
    says err "member of the group"
fi
exit $failed
