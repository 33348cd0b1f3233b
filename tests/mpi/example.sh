#!/usr/bin/env bash
# example.sh CMAKE BUILD SOURCE MPIEXEC NUMPROC_FLAG - examples/vocabulary_parallel.c is built with
# mpicc against an installed tree, by what pkg-config says, and has the same last line on 1, 2 and 3
# ranks.
set -euo pipefail
cmake=$1 build=$2 source=$3 mpiexec=$4 flag=$5
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$cmake" --install "$build" --component Unspecified --prefix "$folder/tree" >/dev/null
pc=$(dirname "$(find "$folder/tree" -name softmax-mpi.pc)")
read -ra flags < <(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs softmax-mpi)
mpicc -std=c11 -Wall -Wextra -Werror "$source/examples/vocabulary_parallel.c" "${flags[@]}" -o "$folder/program"
LD_LIBRARY_PATH=$(dirname "$pc")
export LD_LIBRARY_PATH
want=
for ranks in 1 2 3; do
  got=$("$mpiexec" "$flag" "$ranks" "$folder/program")
  echo "$ranks ranks: $got"
  [ -n "$got" ] && [ "${want:=$got}" = "$got" ] || { echo "FAIL: not '$want'"; exit 1; }
done
