#!/usr/bin/env bash
# Installs the library, its header and weir.pc, the programs and what they need when they run,
# manual pages, completions, and the systemd unit with its configuration as an example.
#
#   [DESTDIR=ROOT] bazel run //:install -- --prefix DIR [--libdir NAME] [--without-serve]
#
# --prefix DIR     where the files will be used (default /usr/local)
# --libdir NAME    folder of libraries below it (default lib; lib/x86_64-linux-gnu on Debian)
# --without-serve  leaves out the program serve, which is `weir serve`
# DESTDIR          put in front of every path that is written, for packages; not in any file
set -euo pipefail

die() { echo "install: $*" >&2; exit 2; }

prefix=/usr/local libdir=lib programs=(weir serve)
while [ $# -gt 0 ]; do
    case $1 in
        --prefix | --libdir) [ $# -ge 2 ] || die "$1 needs a value" ;;&
        --prefix) prefix=$2; shift 2 ;;
        --prefix=*) prefix=${1#*=}; shift ;;
        --libdir) libdir=$2; shift 2 ;;
        --libdir=*) libdir=${1#*=}; shift ;;
        --without-serve) programs=(weir); shift ;;
        -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) die "unknown argument \"$1\"; see --help" ;;
    esac
done
[ -n "$prefix" ] || die "--prefix is empty"
case $libdir in
    lib | lib64 | lib/*) ;;
    *) die "--libdir is lib, lib64 or lib/NAME, not \"$libdir\"" ;;
esac
[ -f include/weir.h ] || die "run it as: bazel run //:install -- --prefix DIR"

# bazel run starts programs elsewhere; relative paths are the caller's.
absolute() {
    case $1 in
        /*) printf '%s' "$1" ;;
        *) printf '%s/%s' "${BUILD_WORKING_DIRECTORY:-$PWD}" "$1" ;;
    esac
}
prefix=$(absolute "$prefix")
root=${DESTDIR:+$(absolute "$DESTDIR")}
to=$root$prefix

version=$(sed -n 's/^#define WEIR_VERSION "\(.*\)"$/\1/p' include/weir.h)
[ -n "$version" ] || die "include/weir.h names no version"
soname=libweir.so.${version%%.*}

install -d "$to/bin" "$to/include" "$to/$libdir/pkgconfig" "$to/share/doc/weir" \
    "$to/share/weir/configs" "$to/share/weir/models/weir-demo"
install -m 644 include/weir.h "$to/include/weir.h"
install -m 755 engine/api/libweir.so "$to/$libdir/libweir.so.$version"
ln -sfn "libweir.so.$version" "$to/$libdir/$soname"
ln -sfn "$soname" "$to/$libdir/libweir.so"
plugin=offload/libweir_gpu.so
if [ -f "$plugin" ]; then install -m 755 "$plugin" "$to/$libdir/"; fi
install -m 755 "${programs[@]/#/engine/cli/}" "$to/bin/"
install -m 644 configs/*.toml "$to/share/weir/configs/"
install -m 644 models/weir-demo/* "$to/share/weir/models/weir-demo/"
install -m 644 LICENSE "$to/share/doc/weir/LICENSE"

share=$to/share manual=tools/manual/pages
install -d "$share/man/man1" "$share/man/man5" "$share/bash-completion/completions" \
    "$share/zsh/site-functions" "$share/fish/vendor_completions.d" "$to/lib/systemd/system"
install -m 644 $manual/man/man1/* "$share/man/man1/"
install -m 644 $manual/man/man5/* "$share/man/man5/"
install -m 644 $manual/bash/weir "$share/bash-completion/completions/weir"
install -m 644 $manual/zsh/_weir "$share/zsh/site-functions/_weir"
install -m 644 $manual/fish/weir.fish "$share/fish/vendor_completions.d/weir.fish"
install -m 644 packaging/weir.toml packaging/grafana.json "$share/doc/weir/"
sed "s|@BIN@|$prefix/bin|" packaging/weir.service >"$to/lib/systemd/system/weir.service"
chmod 644 "$to/lib/systemd/system/weir.service"
cat >"$to/$libdir/pkgconfig/weir.pc" <<END
prefix=$prefix
libdir=\${prefix}/$libdir
includedir=\${prefix}/include

Name: weir
Description: Inference of language models with bounded, accounted, portable key/value memory
Version: $version
Libs: -L\${libdir} -lweir
Cflags: -I\${includedir}
END
echo "installed Weir $version in $to"
