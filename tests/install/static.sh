#!/usr/bin/env bash
# static.sh ARCHIVE INTERNALS SOURCE [MARK...] - the static library defines nothing but the
# functions that softmax.h declares: a program may use every name that is internal to it. With
# MARKs, its code has these (IBT, SHSTK; BTI, PAC). CC, NM and READELF are those of the target,
# FLAGS what CC links with, EMULATOR runs the target's programs.
set -euo pipefail
archive=$1 internals=$2 source=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAIL: $*"; exit 1; }
defined() { "${NM:-nm}" -g --defined-only "$1" | awk 'NF == 3 {print $3}' | sort -u; }

declared=$(find "$source/include" -name '*.h' ! -name mpi.h -exec cat {} + |
  tr '\n' ' ' | grep -oE 'SMX_API [^;(]*\(' | grep -oE 'smx_[a-z0-9_]+ *\($' | tr -d ' (' | sort)
diff <(echo "$declared") <(defined "$archive") || fail "< declared in softmax.h, > defined by $archive"

# A program that has all of the internal names, each a function that ends it.
comm -13 <(echo "$declared") <(defined "$internals") | grep -E '^[A-Za-z_][A-Za-z0-9_]*$' | grep -v '^__' >"$work/names"
count=$(wc -l <"$work/names")
[ "$count" -gt 100 ] || fail "only $count internal names: what was compared?"
{
  echo '#include <stdlib.h>'
  sed 's/.*/void &(void);\nvoid &(void) { _Exit(9); }/' "$work/names"
} >"$work/own.c"
# shellcheck disable=SC2086 # the flags are words
"$CC" -w -fno-builtin -I "$source/include" "$source/examples/softmax.c" "$work/own.c" "$archive" ${FLAGS-} -lm -pthread -o "$work/program"
# shellcheck disable=SC2086
got=$(${EMULATOR-} "$work/program") || fail "a program with names of its own exits with $?"
case $got in '0.0900 0.2447 0.6652'*) ;; *) fail "a program with names of its own prints '$got'" ;; esac

notes=$("${READELF:-readelf}" -n "$archive" 2>/dev/null)
for mark; do grep -q "feature:.*$mark" <<<"$notes" || fail "no object with $mark: $notes"; done
echo "$(wc -l <<<"$declared") symbols, $count names left to others${1+, }$*"
