#!/usr/bin/env bash
# Copy the shared libraries that the programs of a stage folder need beside them, so
# that the folder runs on a machine without our packages. The C library, the dynamic
# linker and what belongs to them stay the machine's own.
#
#   stage_libraries.sh STAGE
set -u
stage=${1:?stage folder}
list=$stage/.libraries
own='^(linux-vdso|ld-linux.*|libc|libm|libpthread|libdl|librt|libresolv|libutil)\.so'

# Those of an earlier run would be found first, however old.
[ -f "$list" ] && (cd "$stage" && xargs -r rm -f --) <"$list"
: >"$list"
for program in "$stage"/*; do
    [ -f "$program" ] && [ ! -L "$program" ] && [ -x "$program" ] || continue
    if missing=$(ldd "$program" | grep 'not found'); then
        echo "stage: $program: $missing" >&2
        exit 1
    fi
    ldd "$program" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }'
done | sort -u | while read -r name path; do
    [[ $name =~ $own ]] && continue
    [ "$(realpath "${path%/*}")" = "$(realpath "$stage")" ] && continue
    cp -L "$path" "$stage/$name" && chmod 755 "$stage/$name" && echo "$name" >>"$list" || exit 1
done || exit 1
echo "$stage: $(wc -l <"$list") libraries copied: $(tr '\n' ' ' <"$list")"
