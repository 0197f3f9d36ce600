#!/usr/bin/env bash
# Functions that are not used here, with what to use instead. Comments and strings
# are taken out first.
set -u
cd "$(dirname "$0")/../.." || exit 1
failed=0

# name|instead
banned='
strcpy|memcpy with a checked length, snprintf
strcat|snprintf
sprintf|snprintf
vsprintf|vsnprintf
gets|getline
atoi|size_parse or strtol with checks
atol|strtol with checks
atof|strtod with checks
strtok|strcspn, strtok_r
accept|accept4 with SOCK_CLOEXEC
alloca|an array with a limit, malloc
system|posix_spawn
popen|posix_spawn
tmpnam|mkstemp, memfd_create
mktemp|mkstemp, mkdtemp
localtime|localtime_r
gmtime|gmtime_r
rand|getrandom, or a generator with a seed of its own
usleep|nanosleep, poll
'

for file in $(find include proto daemon client -name '*.[ch]' -o -name '*.cu'); do
    # Preprocessed input is only stripped of comments; lines keep their numbers.
    text=$(sed 's/\\\\//g; s/\\"//g; s/"[^"]*"/""/g' "$file" |
        gcc -x c -fpreprocessed -E -P -dD - 2>/dev/null)
    while IFS='|' read -r name instead; do
        [ -n "$name" ] || continue
        if grep -qE "(^|[^a-zA-Z0-9_>.])$name[[:space:]]*\(" <<<"$text"; then
            echo "check-source: $file uses $name(); use $instead" >&2
            grep -nE "(^|[^a-zA-Z0-9_>.])$name[[:space:]]*\(" "$file" | sed 's/^/    /' >&2
            failed=1
        fi
    done <<<"$banned"
done
[ "$failed" -eq 0 ] || exit 1
echo "no banned function is used"
