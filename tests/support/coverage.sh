#!/usr/bin/env bash
# Line coverage of a --coverage build after its tests: by gcovr or lcov where one is
# installed, else a table of gcov's own figures. Product files only.
#
#   coverage.sh BUILD
set -u
build=${1:?build folder}
if command -v gcovr >/dev/null; then
    exec gcovr --root . --object-directory "$build/obj" --exclude 'tests/' --exclude "$build" \
        --txt --html-details "$build/coverage.html"
fi
if command -v lcov >/dev/null; then
    lcov -q -c -d "$build/obj" -o "$build/all.info" &&
        lcov -q -e "$build/all.info" "$PWD/proto/*" "$PWD/daemon/*" "$PWD/client/*" -o "$build/coverage.info" &&
        exec lcov --list "$build/coverage.info"
    exit 1
fi
find "$build/obj" -name '*.gcda' -not -path '*/tests/*' -not -path '*/gen/*' -print0 |
    xargs -0 gcov -n 2>/dev/null |
    awk -F"[':% ]+" '
        /^File/ { file = $2 }
        /^Lines executed/ && file ~ /^(proto|daemon|client)\/.*\.c$/ {
            share = $3; n = $5
            printf "%-44s %6.1f %% of %d lines\n", file, share, n
            lines += n; covered += n * share / 100; file = ""
        }
        END { if (lines) { printf "total %.1f %% of %d lines\n", 100 * covered / lines, lines } }' | sort
