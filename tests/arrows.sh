#!/usr/bin/env bash
# arrows.sh [SOURCE FOLDER] - fails when an include points the wrong way (docs/design.md, "The arrows").
# Every include of a file of ours is turned into "from to", where each side is a place in the house, and looked up in the list below.
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}"

# from: the places it may include. "own" is the folder the file is in. A room has three kinds of files:
# facts (table.c and its parts, list.h, ROOM.h), kernel (ops.c and the like) and ref. Files driver_*.c and functions*.c, and all of
# matrix but its facts, are a fourth, entry: functions of a room that has no kernels for rows. So has engine: program (what a
# kernel is, and what this machine asks of its calls), kernel, and ref. The sums of a row that src/score makes, and the products of
# src/head, are there for the entries of others.
allowed='
include own
base    own include
cpu     own program base include
vec     own
engine  own program vec
driver  own facts cpu program base include
api     own facts driver cpu program base include
entry   entry=own facts=own facts=score entry=head facts=head driver cpu program base include
facts   facts=own base include
program program include
kernel  kernel=own facts=own engine program vec
ref     ref=own facts=own ref=engine
mpi     own include
cli     own include
bench   own include
python  own include
examples include
'

declare -A may_include # of a kind
while read -r kind words; do may_include[${kind:-none}]=$words; done <<<"$allowed"

# Functions leave what they find in variables: a subshell for each of a thousand includes would take ten seconds.

# place FILE: folder and kind
place() {
  local file=$1
  case $file in
    src/*) folder=${file#src/} folder=${folder%%/*} ;;
    *) folder=${file%%/*} ;;
  esac
  case $folder in
    include | base | cpu | vec | driver | api | mpi | cli | bench | python | examples | tests) kind=$folder ;;
    engine)
      case ${file##*/} in
        program.h | machine.h) kind=program ;;
        ref.h | ref_*.h) kind=ref ;;
        *) kind=engine ;;
      esac ;;
    *)
      case ${file##*/} in
        table.c | table_*.inc | table_*.h | list.h | "$folder.h") kind=facts ;;
        ref.c | ref_*.c | ref.h) kind=ref ;;
        driver_*.[ch] | functions*.[ch]) kind=entry ;;
        *) if [ "$folder" = matrix ]; then kind=entry; else kind=kernel; fi ;;
      esac ;;
  esac
}

# target FILE NAME: found, the file of ours that an include of NAME in FILE means, or nothing.
target() {
  local beside=${1%/*}
  for found in "$beside/$2" "src/$2" "include/$2" "src/engine/$2" "src/vec/$2"; do
    if [ -e "$found" ]; then
      case $found in *../*) found=$(realpath -m --relative-to=. "$found") ;; esac
      return
    fi
  done
  found=
}

# may FROM_FOLDER FROM_KIND TO_FOLDER TO_KIND
may() {
  local word
  for word in ${may_include[$2]-}; do
    case $word in
      own) [ "$1" = "$3" ] && return ;;
      *=own) [ "$4" = "${word%=own}" ] && [ "$1" = "$3" ] && return ;;
      *=*) [ "$4" = "${word%=*}" ] && [ "$3" = "${word#*=}" ] && return ;;
      *) [ "$4" = "$word" ] && return ;;
    esac
  done
  return 1
}

# outside KIND NAME: whether a file of that kind may include the system's <NAME>.
outside() {
  case "$1 $2" in
    vec\ math.h | kernel\ math.h | *\ tgmath.h) return 1 ;; # arithmetic of the system's own making
    vec\ * | cpu\ * | bench\ *) return 0 ;;
    *\ *intrin.h | *\ arm_neon.h) return 1 ;; # one source for every instruction set
  esac
}

checked=0 wrong=0
complain() {
  echo "$1"
  wrong=$((wrong + 1))
}

while IFS=: read -r file line text; do
  case $text in *SMX_VEC*) text='"vec/vec_portable.h"' ;; esac
  name=${text#*[<\"]} name=${name%%[>\"]*}
  place "$file"
  from_folder=$folder from_kind=$kind
  # <NAME> is one of ours only if it is a public header: vec/math.h is not <math.h>.
  if [[ $text == *'<'* && $name != softmax.h && $name != softmax/*.h ]]; then
    outside "$from_kind" "$name" || complain "$file:$line: $from_kind may not include <$name>"
    continue
  fi
  target "$file" "$name"
  [ -n "$found" ] || continue
  place "$found"
  checked=$((checked + 1))
  may "$from_folder" "$from_kind" "$folder" "$kind" || complain "$file:$line: $from_kind may not include $found"
done < <(find include src cli bench python examples -name '*.[ch]' -o -name '*.cc' -o -name '*.cpp' 2>/dev/null | sort |
  xargs grep -nHE '^[[:space:]]*#[[:space:]]*include')

# What runs operators for others is the driver: nobody beneath the public functions calls one of theirs.
while IFS= read -r call; do
  complain "$call: calls a public function; driver/operator.h has what it needs"
done < <(grep -nEo '\bsmx_(forward|backward|infer|softmax|softmax_backward|log_softmax|logsumexp)\(' src/driver/*.[ch] src/matrix/*.c src/*/driver_*.c src/*/functions*.c)

echo "$checked includes of our own files, $wrong wrong"
[ "$checked" -gt 0 ] && [ "$wrong" -eq 0 ]
