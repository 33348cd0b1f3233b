#!/usr/bin/env bash
# symbols.sh LIBRARY INCLUDE - libsoftmax_mpi exports the functions of softmax/mpi.h and no other; and
# softmax.h does not bring that header.
set -euo pipefail
declared=$(tr '\n' ' ' <"$2/softmax/mpi.h" | grep -oE 'SMX_API [^;(]*\(' | grep -oE 'smx_[a-z0-9_]+ *\($' | tr -d ' (' | sort)
exported=$(nm -D --defined-only "$1" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | sort)
diff <(echo "$declared") <(echo "$exported")
! grep -n 'include.*mpi\.h' "$2/softmax.h"
echo "$(wc -l <<<"$exported") functions, as declared"
