#!/usr/bin/env bash
# header.sh SOURCE - softmax.h compiles alone, twice included, as C11 and as C++17, without a warning. CC and CXX are the compilers.
set -euo pipefail

flags=(-Wall -Wextra -Werror -pedantic -I "$1/include" -o /dev/null -c)
code='#include <softmax.h>
#include <softmax.h>
smx_status f(float *x);
smx_status f(float *x) { return smx_softmax_f32(1, 3, x, x); }'

"$CC" -std=c11 -Wstrict-prototypes "${flags[@]}" -x c - <<<"$code"
echo "C11: yes"
if [ -z "${CXX:-}" ]; then
  echo "C++17: skipped, no C++ compiler"
  exit 77
fi
"$CXX" -std=c++17 "${flags[@]}" -x c++ - <<<"$code"
echo "C++17: yes"
