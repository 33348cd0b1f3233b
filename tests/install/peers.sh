#!/usr/bin/env bash
# peers.sh CMAKE SOURCE WORK - a peer of the benchmark that is missing or does not build here is
# left out with a line; CMake goes on. CXX is the C++ compiler, GENERATOR the generator of CMake.
set -euo pipefail

cmake=$1 source=$2 work=$3
if [ -z "${CXX:-}" ]; then
  echo "skipped: no C++ compiler"
  exit 77
fi
rm -rf "$work"
mkdir -p "$work/project" "$work/lib/cmake/dnnl" "$work/include/oneapi/dnnl"
cat >"$work/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.16)
project(peers CXX)
add_executable(softmax_bench main.cc)
include($source/bench/peers.cmake)
smx_peers(softmax_bench)
END
echo 'int main() {}' >"$work/project/main.cc"

# configure NAME ARGS...: what it says is in $work/NAME.log
configure() {
  local name=$1
  shift
  "$cmake" -G "$GENERATOR" -S "$work/project" -B "$work/$name" -DCMAKE_CXX_COMPILER="$CXX" "$@" >"$work/$name.log" 2>&1 && return
  cat "$work/$name.log"
  echo "FAIL: CMake stops without a peer"
  exit 1
}
expect() {
  grep -q "$2" "$work/$1.log" && return
  cat "$work/$1.log"
  echo "FAIL: $1: no line '$2'"
  exit 1
}

configure none -DSMX_LIBRARY_XNNPACK=SMX-NOTFOUND -DSMX_LIBRARY_dnnl=SMX-NOTFOUND -DCMAKE_FIND_ROOT_PATH="$work/nowhere" \
  -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY
expect none "XNNPACK is left out"
expect none "oneDNN is left out"

# A library whose header asks for what is not there, and whose CMake files stop everything: so is
# oneDNN without OpenCL's headers.
echo 'message(FATAL_ERROR "OpenCL is missing")' >"$work/lib/cmake/dnnl/dnnl-config.cmake"
echo '#include <no/such/header.h>' >"$work/include/oneapi/dnnl/dnnl.hpp"
echo 'int f() { return 1; }' >"$work/f.cc"
"$CXX" -shared -fPIC "$work/f.cc" -o "$work/lib/libdnnl.so"
CPLUS_INCLUDE_PATH=$work/include configure broken -DCMAKE_PREFIX_PATH="$work"
expect broken "oneDNN is left out"
echo "a peer that is missing, and one that does not build, are left out"
