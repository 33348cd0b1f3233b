#!/usr/bin/env bash
# symbols.sh LIBRARY INCLUDE - the shared library exports exactly the functions that the headers
# there declare SMX_API, under its SONAME, read-only after the start; and it calls nothing that
# prints or ends the process.
set -euo pipefail
library=$1 include=$2

declared=$(find "$include" -name '*.h' ! -name mpi.h -exec cat {} + |
  tr '\n' ' ' | grep -oE 'SMX_API [^;(]*\(' | grep -oE 'smx_[a-z0-9_]+ *\($' | tr -d ' (' | sort)
exported=$(nm -D --defined-only "$library" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | sort)
if ! diff <(echo "$declared") <(echo "$exported"); then
  echo "FAIL: < declared in $include, > exported by $library"
  exit 1
fi
number() { sed -n "s/^#define SMX_VERSION_$1 //p" "$include/softmax.h"; }
abi=$(number MAJOR)
[ "$abi" != 0 ] || abi=0.$(number MINOR) # until 1.0 a minor version may break
readelf -d "$library" | grep -q "SONAME.*\[libsoftmax\.so\.$abi\]" || { echo "FAIL: the SONAME is not libsoftmax.so.$abi"; exit 1; }
readelf --wide -V "$library" | grep "Name: LIBSOFTMAX_$abi *$" >/dev/null || { echo "FAIL: no symbol version LIBSOFTMAX_$abi"; exit 1; }
if ! readelf --wide -l "$library" | grep GNU_RELRO >/dev/null || ! readelf --wide -d "$library" | grep 'FLAGS.*NOW' >/dev/null; then
  echo "FAIL: addresses of functions can be written after the start"
  exit 1
fi
if readelf --wide -d "$library" | grep -E 'TEXTREL|RPATH|RUNPATH'; then
  echo "FAIL: text relocations or a run path"
  exit 1
fi
if nm -D --undefined-only "$library" | sed 's/@.*//' |
  grep -E ' (abort|_?exit|_Exit|raise|v?printf|v?fprintf|puts|putchar|fputs|fputc|putc|fwrite|perror|__v?f?printf_chk)$'; then
  echo "FAIL: a library does not print, abort or exit"
  exit 1
fi
echo "$(wc -l <<<"$exported") symbols, as declared; libsoftmax.so.$abi"
