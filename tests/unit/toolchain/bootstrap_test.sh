#!/bin/sh
# bootstrap does nothing when all packages are there, and says what it would do otherwise. Its world
# is a folder of fake commands.
set -eu
cp bootstrap "$TEST_TMPDIR/bootstrap"
cd "$TEST_TMPDIR"
mkdir -p toolchain bin
chmod +x bootstrap
printf '# comment\nbuild alpha 1.2-3\nlib beta 2.*\ndev gamma 3.0\n' >toolchain/packages.txt
fail() { echo "FAILED: $*" >&2; exit 1; }
expect() { grep -q -- "$1" out || { cat out >&2; fail "no \"$1\" in the output"; }; }
run() { status=0; PATH=$PWD/bin:/usr/bin:/bin ./bootstrap "$@" >out 2>&1 || status=$?; }

# dpkg-query ... NAME answers with versions/NAME; apt-get install puts what apt/NAME has there.
mkdir -p versions apt
cat >bin/dpkg-query <<'F'
#!/bin/sh
for name; do :; done
[ -f "versions/$name" ] && printf 'ii %s' "$(cat "versions/$name")"
F
cat >bin/apt-get <<'F'
#!/bin/sh
echo "$*" >>apt.log
case "$*" in *install*) for name; do [ ! -f "apt/$name" ] || cp "apt/$name" versions/; done ;; esac
F
printf '#!/bin/sh\necho 0\n' >bin/id
chmod +x bin/*
echo 1.2-3 >apt/alpha; echo 2.7 >apt/beta; echo 3.0 >apt/gamma

run
[ "$status" = 0 ] || fail "installing ended with $status: $(cat out)"
expect "installing alpha beta"
run
{ [ "$status" = 0 ] && [ ! -s out ]; } || fail "the second run was not silent: $(cat out)"
[ "$(grep -c install apt.log)" = 1 ] || fail "the second run called apt-get"
run dev
[ "$status" = 0 ] || fail "the group dev ended with $status"
expect "installing gamma"
run dev
[ ! -s out ] || fail "the group dev is not idempotent"

echo 1.2-4 >versions/alpha
echo 1.2-4 >apt/alpha
run
[ "$status" = 1 ] || fail "a wrong version was accepted"
expect "alpha 1.2-3 1.2-4"
run music
[ "$status" = 1 ] || fail "an unknown group was accepted"
expect "unknown group 'music'"
printf '#!/bin/sh\necho 1000\n' >bin/id
PATH_WITHOUT_SUDO=$PWD/bin
mkdir -p only
for tool in sh dirname sed cut tr cat cp; do ln -sf "$(command -v "$tool")" only/; done
status=0
PATH=$PATH_WITHOUT_SUDO:$PWD/only ./bootstrap >out 2>&1 || status=$?
[ "$status" = 1 ] || fail "a user without sudo got $status"
expect "run it as root"
echo ok
