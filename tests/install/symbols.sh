#!/usr/bin/env bash
# symbols.sh LIBRARY HEADER - the shared library exports exactly the functions that the header declares SMX_API, under its SONAME; and it calls
# nothing that prints or ends the process.
set -euo pipefail
library=$1 header=$2

declared=$(tr '\n' ' ' <"$header" | grep -oE 'SMX_API [^;(]*\(' | grep -oE 'smx_[a-z0-9_]+ *\($' | tr -d ' (' | sort)
exported=$(nm -D --defined-only "$library" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | sort)
if ! diff <(echo "$declared") <(echo "$exported"); then
  echo "FAIL: < declared in $header, > exported by $library"
  exit 1
fi
readelf -d "$library" | grep -q 'SONAME.*\[libsoftmax\.so\.0\]' || { echo "FAIL: the SONAME is not libsoftmax.so.0"; exit 1; }
if readelf --wide -d "$library" | grep -E 'TEXTREL|RPATH|RUNPATH'; then
  echo "FAIL: text relocations or a run path"
  exit 1
fi
if nm -D --undefined-only "$library" | sed 's/@.*//' |
  grep -E ' (abort|_?exit|_Exit|raise|v?printf|v?fprintf|puts|putchar|fputs|fputc|putc|fwrite|perror|__v?f?printf_chk)$'; then
  echo "FAIL: a library does not print, abort or exit"
  exit 1
fi
echo "$(wc -l <<<"$exported") symbols, as declared; libsoftmax.so.0"
