#!/usr/bin/env bash
# The library exports what cubiemem.h declares, under a version node, and no more;
# its archive defines the same names; it needs libc and libprotobuf-c alone.
#
#   check_exports.sh LIBRARY.so ARCHIVE.a SONAME
set -u
shared=$1 archive=$2 soname=$3
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
failed=0

fail() {
    echo "check-exports: $*" >&2
    failed=1
}

# same WHAT FILE: FILE lists what the header does
same() {
    local missing extra
    missing=$(comm -23 "$scratch/header" "$2" | tr '\n' ' ')
    extra=$(comm -13 "$scratch/header" "$2" | tr '\n' ' ')
    [ -z "$missing" ] || fail "declared in cubiemem.h, not in $1: $missing"
    [ -z "$extra" ] || fail "in $1, not declared in cubiemem.h: $extra"
}

# Declarations run over lines; the first name before a parenthesis is the function's.
sed -n '/^CUBIEMEM_API/,/;/p' include/cubiemem.h | tr '\n' ' ' | tr ';' '\n' |
    grep -o 'cubiemem_[a-z0-9_]*(' | tr -d '(' | sort -u >"$scratch/header"
[ -s "$scratch/header" ] || fail "no function found in include/cubiemem.h"

nm -D --defined-only --with-symbol-versions "$shared" | awk '$2 != "A" { print $3 }' >"$scratch/symbols"
grep -v '@@CUBIEMEM_' "$scratch/symbols" | grep . >"$scratch/bare" &&
    fail "without a version node: $(tr '\n' ' ' <"$scratch/bare")"
sed 's/@.*//' "$scratch/symbols" | sort -u >"$scratch/shared"
same "${shared##*/}" "$scratch/shared"
nm -g --defined-only "$archive" | awk 'NF == 3 { print $3 }' | sort -u >"$scratch/archive"
same "${archive##*/}" "$scratch/archive"

readelf -d "$shared" | grep -q "SONAME.*\[$soname\]" || fail "the soname of $shared is not $soname"
readelf -d "$shared" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
    grep -v '^libprotobuf-c\.so\.1$\|^libc\.so\.\|^ld-linux' >"$scratch/needed" &&
    fail "the library also needs $(tr '\n' ' ' <"$scratch/needed")"

[ "$failed" -eq 0 ] || exit 1
echo "$(wc -l <"$scratch/header") functions are exported, as declared"
