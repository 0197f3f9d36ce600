#!/usr/bin/env bash
# Who may include whom. Arrows go one way: the policy is pure, protobuf stops at
# dispatch and channel, client and daemon do not know each other.
set -u
cd "$(dirname "$0")/../.." || exit 1
failed=0

# never WHY PATTERN FILE...
never() {
    local why=$1 pattern=$2 found
    shift 2
    found=$(grep -nE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]$pattern[>\"]" "$@" /dev/null) || return
    echo "check-source: $why:" >&2
    echo "$found" | sed 's/^/    /' >&2
    failed=1
}

shopt -s nullglob
policy=(daemon/policy/*.[ch])
daemon=(daemon/*.[ch] daemon/policy/*.[ch] daemon/sim/*.[ch] daemon/sim/engine/*.[ch])
client=(client/*.[ch])
tool=(client/cubiememctl/*.[ch])
example=(client/examples/*/*.[ch])
proto=(proto/*.[ch])

never "the policy knows no loop, socket, device, clock or message" \
    '(uv|cuda|cuda_decl|driver|sys/socket|sys/un|time|sys/time|pthread|cubiemem\.pb-c|protobuf-c/.*)\.h' \
    "${policy[@]}"
never "only the daemon has an event loop" 'uv\.h' "${proto[@]}" "${client[@]}" "${tool[@]}" "${example[@]}"
never "cuda.h is read through cuda_decl.h alone" 'cuda\.h' "${daemon[@]}" "${client[@]}" "${tool[@]}"
never "the client does not include the daemon" '(\.\./)*(\.\./daemon|daemon|policy)/.*\.h' \
    "${client[@]}" "${example[@]}"
# cubiememctl's simulate and plan use the policy's two headers, nothing else of it.
never "the tool uses policy.h and scenario.h of the daemon alone" '(\.\./)*daemon/([^p]|p[^o]).*\.h' "${tool[@]}"
never "the daemon does not include the client" '(\.\./)*client/.*\.h' "${daemon[@]}"
never "proto stands below both" '(\.\./)*(client|daemon)/.*\.h' "${proto[@]}"
never "examples use the public header alone" \
    '(\.\./)*(proto/.*|channel|connection|packet|endpoint|cubiemem\.pb-c)\.h' "${example[@]}"
# Bare names resolve by -iquote, so look for each other's headers by name, too.
for header in client/*.h; do
    name=${header##*/}
    [ -e "daemon/$name" ] || [ -e "daemon/policy/$name" ] || [ -e "daemon/sim/$name" ] ||
        [ -e "proto/$name" ] || never "the daemon does not include the client" "${name//./\\.}" "${daemon[@]}"
done
for header in daemon/*.h daemon/policy/*.h; do
    name=${header##*/}
    [ -e "client/$name" ] || [ -e "proto/$name" ] ||
        never "the client does not include the daemon" "${name//./\\.}" "${client[@]}" "${example[@]}"
done

[ "$failed" -eq 0 ] || exit 1
echo "the map of includes is kept"
