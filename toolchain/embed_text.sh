#!/bin/sh
# Writes text files as a C table: embed_text.sh TYPE TABLE HEADER FILES... > out.c ; TYPE has the
# fields name and text.
set -eu
type=$1 table=$2 header=$3
shift 3
printf '#include "%s"\n\nconst %s %s[] = {\n' "$header" "$type" "$table"
for file in "$@"; do
    printf '    { "%s",\n' "$(basename "$file")"
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/?/\\?/g' -e 's/^/      "/' -e 's/$/\\n"/' "$file"
    printf '    },\n'
done
printf '    { 0 },\n};\n'
