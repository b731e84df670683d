#!/bin/sh
# tests/api/run.sh - installs the library and tries it as others do: its symbols, the header alone,
# programs and examples compiled with pkg-config, the Python package. Ends with
# "N passed, N failed".
#   tests/api/run.sh
set -eu
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0
export PYTHONDONTWRITEBYTECODE=1 LC_ALL=C.UTF-8
unset WEIR_LIBRARY WEIR_MODEL DESTDIR || true

# check NAME COMMAND...: what it prints is shown when it fails.
check() {
    name=$1; shift
    if "$@" >"$work/log" 2>&1 </dev/null; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s\n' "$name"
        tail -n 40 "$work/log"
    fi
}

# ---- what is installed ---------------------------------------------------------------------------
prefix=$work/prefix lib=$work/prefix/lib
install_both() {
    cd "$top" && bazel run //:install -- --prefix "$prefix" &&
        DESTDIR=$work/root bazel run //:install -- --prefix=/usr --libdir lib/x86_64-linux-gnu
}
if ! (install_both) >"$work/log" 2>&1; then
    tail -n 40 "$work/log"
    echo "0 passed, 1 failed"
    exit 1
fi
export PKG_CONFIG_PATH="$lib/pkgconfig" LD_LIBRARY_PATH="$lib"

functions_of_header() { # comments end on their line or begin with an asterisk
    sed 's|/\*.*\*/||; s|/\*.*||' "$1" | grep -v '^ \*' | grep -v '^typedef' |
        grep -o 'weir_[a-z_]*(' | tr -d '(' | sort -u
}
exported() {
    nm -D --defined-only "$1" | awk '$2 != "A" { sub("@@.*", "", $3); print $3 }' | sort -u
}
same_symbols() {
    functions_of_header "$prefix/include/weir.h" >"$work/header"
    exported "$lib/libweir.so" >"$work/exported"
    [ -s "$work/header" ] && diff "$work/header" "$work/exported"
}
versioned() {
    ! nm -D --defined-only "$lib/libweir.so" | grep ' [TBDRVW] ' | grep -v '@@WEIR_0$'
}
soname() {
    readelf -d "$lib/libweir.so" | grep 'SONAME.*\[libweir\.so\.0\]' &&
        [ "$(readlink "$lib/libweir.so")" = libweir.so.0 ] && [ -f "$lib/libweir.so.0" ]
}
hardened() {
    readelf -dW "$lib/libweir.so" | grep -q 'BIND_NOW\|FLAGS.*NOW' &&
        readelf -lW "$lib/libweir.so" | awk '/GNU_STACK/ { s = $7 } /GNU_RELRO/ { r = 1 }
            END { exit !(s == "RW" && r) }' && ! readelf -dW "$lib/libweir.so" | grep TEXTREL
}
pc_version() {
    [ "$(pkg-config --modversion weir)" = "$("$prefix/bin/weir" --version | cut -d' ' -f2)" ]
}
destdir() {
    root=$work/root/usr
    [ -f "$root/include/weir.h" ] && [ -x "$root/bin/serve" ] && [ ! -e "$root/lib/libweir.so" ] &&
        grep -x 'prefix=/usr' "$root/lib/x86_64-linux-gnu/pkgconfig/weir.pc"
}
read_pages() {
    [ -f "$prefix/share/man/man5/weir.toml.5" ] &&
        [ -f "$prefix/share/zsh/site-functions/_weir" ] &&
        [ -f "$prefix/share/fish/vendor_completions.d/weir.fish" ] &&
        grep -q '^complete .* weir$' "$prefix/share/bash-completion/completions/weir" &&
        [ "$(find "$prefix/share/man/man1" -name 'weir*.1' -type f | wc -l)" -gt 30 ]
}
check "the library exports the functions of the header" same_symbols
check "every symbol has the version WEIR_0" versioned
check "soname and links" soname
check "no executable stack, relocations are read-only" hardened
check "weir.pc has the version of the programs" pc_version
check "DESTDIR goes in front, weir.pc does not name it" destdir
check "manual pages and completions" read_pages
unit() {
    grep -x "ExecStart=$prefix/bin/weir serve .*" "$prefix/lib/systemd/system/weir.service" &&
        [ -f "$prefix/share/doc/weir/weir.toml" ]
}
check "the systemd unit starts the installed program" unit
mkdir "$work/empty"
elsewhere() { (cd "$work/empty" && "$@"); }
check "weir finds its model" elsewhere "$prefix/bin/weir" generate Once --max-tokens 3
check "serve finds its configuration" elsewhere "$prefix/bin/serve" --config qwen35.toml --plan

# ---- compiled against it -------------------------------------------------------------------------
flags="-Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags weir)" libs=$(pkg-config --libs weir)
echo '#include <weir.h>' >"$work/alone.c"
cp "$work/alone.c" "$work/alone.cc"
# shellcheck disable=SC2086 # lists of flags
check "the header is C99" cc -std=c99 $flags -fsyntax-only "$work/alone.c"
# shellcheck disable=SC2086
check "the header is C++11" c++ -std=c++11 $flags -fsyntax-only "$work/alone.cc"
for example in generate chat document; do
    # shellcheck disable=SC2086
    check "cc $example.c" cc -std=c11 -D_POSIX_C_SOURCE=200809L -O1 $flags \
        "$top/examples/$example.c" -o "$work/$example" $libs
done
# shellcheck disable=SC2086
check "cc host.c" cc -std=c11 -D_POSIX_C_SOURCE=200809L -fopenmp $flags "$here/host.c" \
    -o "$work/host" $libs -ljansson
check "a program keeps its allocator, threads and signals" "$work/host"

generates() {
    "$work/generate" "Once upon a time" >"$work/out" 2>"$work/err" && [ -s "$work/out" ] &&
        grep 'tokens in .* finish reason: ' "$work/err"
}
refuses() { ! "$work/generate" Once /no/model 2>"$work/err" && grep '/no/model' "$work/err"; }
# The second run computes the questions alone, and answers as the first one.
asks() {
    {
        head -c 2500 "$top/models/weir-demo/eval/val_novel.txt"
        printf '\nThe price of the museum is 1212.\n'
        head -c 1200 "$top/models/weir-demo/eval/val_novel.txt"
    } >"$work/text"
    question="What is the price of the museum?"
    for run in first second; do
        "$work/document" "$work/text" "$work/state" "$question" \
            "$question Answer with the number only." >"$work/$run" || return 1
    done
    cat "$work/first" "$work/second"
    grep 'The price of the museum is 1212' "$work/first" &&
        awk '/reused/ { gsub("[^0-9 ]", ""); if ($2 > 64 || $1 < 900) exit 1; n++ }
            END { exit n != 2 }' "$work/second" &&
        grep -v reused "$work/first" >"$work/a" && grep -v reused "$work/second" | diff "$work/a" -
}
check "generate.c answers" generates
check "generate.c says what is wrong" refuses
check "document.c answers from what it saved" asks
check "chat.c streams, and Ctrl-C leaves it running" python3 "$here/chat.py" "$work/chat"

# ---- Python --------------------------------------------------------------------------------------
# unittest FOLDER-OF-PACKAGE: adds the number of tests.
unittest() {
    if (cd "$work/empty" && PYTHONPATH=$1 "$python" -m unittest discover \
        -s "$top/bindings/python/tests") >"$work/log" 2>&1; then
        passed=$((passed + $(sed -n 's/^Ran \([0-9]*\) tests\{0,1\} .*/\1/p' "$work/log")))
    else
        failed=$((failed + 1))
        tail -n 60 "$work/log"
    fi
}
python=python3
export WEIR_LIBRARY="$lib/libweir.so"
unittest "$top/bindings/python"
unset WEIR_LIBRARY

# Installed by pip, which fetches setuptools; the library is found by the loader, then next to the
# package.
installed() {
    cp -r "$top/bindings/python" "$work/python" && python3 -m venv "$work/venv" &&
        "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
            "$work/python"
}
check "pip install ./bindings/python" installed
python=$work/venv/bin/python
if [ -x "$python" ]; then unittest ""; fi
next_to_package() {
    package=$("$python" -c 'import os, weir; print(os.path.dirname(weir.__file__))') &&
        cp "$lib/libweir.so.0" "$package/" &&
        env -u LD_LIBRARY_PATH "$python" -c 'import weir; print(weir.version())'
}
absent() {
    ! env -u LD_LIBRARY_PATH PYTHONPATH="$top/bindings/python" python3 -c 'import weir' \
        2>"$work/err" && grep WEIR_LIBRARY "$work/err"
}
check "the library is found next to the package" next_to_package
check "without a library the package says how to get one" absent

printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
