#!/usr/bin/env bash
# run.sh CMAKE BUILD SOURCE - a kind of attention weights is added to a copy of the tree by
# stable.patch, which touches src/attention and a number in the header alone; the library is built,
# and the kind is there and gives what its reference gives. docs/adding-an-operator.md shows this
# patch. CC is the compiler, GENERATOR the generator of CMake.
set -euo pipefail

cmake=$1 build=$2 source=$3
here=$source/tests/new_kind work=$build/new-kind
command -v git >/dev/null || { echo "skipped: no git"; exit 77; }

rm -rf "$work"
mkdir -p "$work/tree"
cp -r "$source"/{CMakeLists.txt,cmake,include,src} "$work/tree"
cd "$work/tree"
export GIT_CEILING_DIRECTORIES=$work # the build folder may lie in a repository
touched=$(git apply --numstat "$here/stable.patch" | cut -f 1,3 | grep -v $'\tsrc/attention/' || true)
[ "$touched" = $'1\tinclude/softmax/attention.h' ] || { echo "FAIL: it touches more: $touched"; exit 1; }
git apply -v "$here/stable.patch"
# One instruction set, and the compiler at its quickest: only what comes out matters.
"$cmake" -S "$work/tree" -B "$work/build" -G "$GENERATOR" -DCMAKE_C_COMPILER="$CC" -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_C_FLAGS_DEBUG=-O0 -DSMX_ISAS=none -DSMX_SHARED=OFF -DSMX_CLI=OFF -DSMX_TESTS=OFF >"$work/cmake.log"
"$cmake" --build "$work/build" -j 2 >"$work/build.log" || { tail -30 "$work/build.log"; exit 1; }
"$CC" -std=c11 -I "$work/tree/include" -I "$work/tree/src" "$here/use.c" "$work/tree/src/attention/ref.c" \
  "$work/build/libsoftmax.a" -lm -pthread -o "$work/use"
"$work/use"
