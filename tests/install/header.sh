#!/usr/bin/env bash
# header.sh SOURCE - each public header compiles alone, twice included, as C11 and as C++17, without
# a warning, and brings what it declares. CC and CXX are the compilers.
set -euo pipefail

flags=(-Wall -Wextra -Werror -pedantic -I "$1/include" -o /dev/null -c)

# program HEADER: a file that includes it alone, and takes the address of every function that it
# declares.
program() {
  printf '#include <%s>\n#include <%s>\ntypedef void (*any)(void);\nany *all(void);\nany *all(void) {\n  static any list[] = {' "$1" "$1"
  tr '\n' ' ' <"$source/include/$1" | grep -oE 'SMX_API [^;(]*\(' | grep -oE 'smx_[a-z0-9_]+ *\($' |
    tr -d ' (' | sed 's/.*/(any)&,/' | tr '\n' ' '
  printf '};\n  return list;\n}\n'
}

source=$1
# softmax/mpi.h is of another library, whose tests (tests/mpi) compile it.
mapfile -t headers < <(cd "$source/include" && find . -name '*.h' ! -name mpi.h | sed 's|^\./||' | sort)
[ ${#headers[@]} -ge 4 ] || { echo "only ${#headers[@]} headers"; exit 1; }
for header in "${headers[@]}"; do "$CC" -std=c11 -Wstrict-prototypes "${flags[@]}" -x c - <<<"$(program "$header")"; done
echo "C11: ${headers[*]}"
if [ -z "${CXX:-}" ]; then
  echo "C++17: skipped, no C++ compiler"
  exit 77
fi
for header in "${headers[@]}"; do "$CXX" -std=c++17 "${flags[@]}" -x c++ - <<<"$(program "$header")"; done
echo "C++17: ${headers[*]}"
