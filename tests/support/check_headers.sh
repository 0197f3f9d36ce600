#!/usr/bin/env bash
# Every header compiles alone, and twice: it includes what it needs and is guarded.
#
#   check_headers.sh CUDA_INCLUDE FLAGS HEADER...
#
# Ours compile as C11 with the build's flags, and, where they declare driver types,
# also without cuda.h. The public header compiles without any flag of ours, as C11,
# C++11 and C++17, pedantically. CUDA_INCLUDE may be empty.
set -u
cc=${CC:-gcc}
cxx=${CXX:-g++}
cuda_include=$1 flags=$2
shift 2
failed=0
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

# alone HEADER COMPILER...: reports what does not compile
alone() {
    local header=$1
    shift
    printf '#include "%s"\n#include "%s"\n' "$PWD/$header" "$PWD/$header" | "$@" -fsyntax-only - 2>"$log" && return
    head -n 12 "$log" >&2
    echo "check-headers: $header does not compile alone: $*" >&2
    failed=$((failed + 1))
}

for header in "$@"; do
    case $header in
    include/*)
        for std in c11 gnu11; do
            alone "$header" "$cc" -x c -std=$std -Wall -Wextra -Wpedantic -Werror
        done
        for std in c++11 c++17; do
            alone "$header" "$cxx" -x c++ -std=$std -Wall -Wextra -Wpedantic -Werror
        done
        ;;
    *)
        # shellcheck disable=SC2086
        alone "$header" "$cc" -x c -std=gnu11 $flags -iquote "${header%/*}" -Werror
        [ -n "$cuda_include" ] && grep -q 'cuda_decl\.h\|driver\.h' "$header" &&
            # shellcheck disable=SC2086
            alone "$header" "$cc" -x c -std=gnu11 -DCUBIEMEM_NO_CUDA_H $flags \
                -iquote "${header%/*}" -Werror
        ;;
    esac
done
[ "$failed" -eq 0 ] || exit 1
echo "$# headers compile alone"
