#!/usr/bin/env bash
# consumer.sh CMAKE BUILD SOURCE - installs into an empty prefix, moves the tree, and builds a program against it in every supported way.
# CC is the compiler, GENERATOR the generator of CMake.
set -euo pipefail

cmake=$1 build=$2 source=$3
work=$build/install-test
want='0.0900 0.2447 0.6652'

step() { echo "== $*"; }
fail() { echo "FAIL: $*"; exit 1; }
expect() { # what it prints begins with the weights
  local got
  got=$("$@") || fail "$* exits with $?"
  case $got in "$want"*) echo "$got" ;; *) fail "$*: got '$got'" ;; esac
}

rm -rf "$work"
mkdir -p "$work"
cd "$work"

step "install, then move"
"$cmake" --install "$build" --prefix "$work/first" >install.log
mv first moved
lib=$(dirname "$(find moved -name 'libsoftmax.*' -not -name '*.pc' | head -1)")
[ -e moved/include/softmax.h ] || fail "no header"
diff -r -x mpi.h "$source/include" moved/include || fail "the headers are not those of the source" # mpi.h is there with libsoftmax_mpi
grep -rlF -e "$work/first" -e "$source" moved --include='*.pc' --include='*.cmake' && fail "an installed file knows where it was built"
export PKG_CONFIG_PATH=$work/$lib/pkgconfig LD_LIBRARY_PATH=
has_shared=$([ -e "$lib/libsoftmax.so" ] && echo 1 || echo 0)
has_static=$([ -e "$lib/libsoftmax.a" ] && echo 1 || echo 0)

# shellcheck disable=SC2046 # the flags of pkg-config are words
if [ "$has_shared" = 1 ]; then
  step "pkg-config, shared"
  "$CC" -std=c11 "$source/examples/softmax.c" $(pkg-config --cflags --libs softmax) -o shared
  soname=$(readelf -d "$lib/libsoftmax.so" | sed -n "s/.*SONAME.*\[\(.*\)\]/\1/p")
  readelf -d shared | grep -qF "[$soname]" || fail "not linked to $soname"
  LD_LIBRARY_PATH=$work/$lib expect ./shared
fi

# shellcheck disable=SC2046
if [ "$has_static" = 1 ]; then
  step "pkg-config, static"
  "$CC" -std=c11 -static "$source/examples/softmax.c" $(pkg-config --static --cflags --libs softmax) -o static
  expect ./static
fi

step "find_package"
"$cmake" -G "$GENERATOR" -S "$source/examples" -B cmake -DCMAKE_PREFIX_PATH="$work/moved" -DCMAKE_C_COMPILER="$CC" >cmake.log
"$cmake" --build cmake >>cmake.log
expect cmake/example

if [ "$has_static" = 1 ]; then
  step "find_package, softmax::static"
  mkdir static-project
  sed 's/softmax::softmax)/softmax::static)/' "$source/examples/CMakeLists.txt" >static-project/CMakeLists.txt
  cp "$source/examples/softmax.c" static-project
  "$cmake" -G "$GENERATOR" -S static-project -B cmake-static -DCMAKE_PREFIX_PATH="$work/moved" -DCMAKE_C_COMPILER="$CC" >cmake-static.log
  "$cmake" --build cmake-static >>cmake-static.log
  expect cmake-static/example
fi

if [ -e moved/bin/softmax ]; then
  step "the command, its man page and its completion"
  moved/bin/softmax --version
  [ -s moved/share/man/man1/softmax.1 ] || fail "no man page"
  bash -n moved/share/bash-completion/completions/softmax || fail "the completion is not bash"
  for file in zsh/site-functions/_softmax fish/vendor_completions.d/softmax.fish; do
    [ -s "moved/share/$file" ] || fail "no $file"
    if command -v "${file%%/*}" >/dev/null; then "${file%%/*}" -n "moved/share/$file" || fail "$file is not ${file%%/*}"; fi
  done
fi

step "DESTDIR"
DESTDIR=$work/dest "$cmake" --install "$build" --prefix /usr >destdir.log
[ -e dest/usr/include/softmax.h ] || fail "DESTDIR is not respected"

step "uninstall"
"$cmake" --install "$build" --prefix "$work/again" >again.log
"$cmake" -P "$build/uninstall.cmake" >uninstall.log
left=$(find again -not -type d)
[ -z "$left" ] || fail "uninstall leaves $left"
echo "all well"
