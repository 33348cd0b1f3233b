#!/usr/bin/env bash
# dev.sh SOURCE WORK - every verb of ./dev on a machine without any of the packages, where some of
# them cannot be had: what is optional is left out with a line, what is needed is asked for, and
# nothing else fails. The tools are stubs, so this is about ./dev alone.
set -euo pipefail

source=$1 work=$2
rm -rf "$work"
mkdir -p "$work/stubs" "$work"/build/{default,run,asan,tsan}/bin "$work"/build/{aarch64,static-threadfree} "$work/build/venv/bin"
fail() { cat "$work/log"; echo "FAIL: $*"; exit 1; }

stub() { printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod +x "$1"; }
for tool in cmake ctest python3 clang-format; do
  stub "$work/stubs/$tool" "echo $tool \"\$@\" >>$work/calls"
done
stub "$work/stubs/id" 'echo 0'
stub "$work/stubs/git" 'echo cli/main.c'
stub "$work/stubs/cc" 'exit 1'
stub "$work/stubs/dpkg-query" 'exit 1'
cat >"$work/stubs/apt-get" <<END
#!/bin/bash
for word in "\$@"; do
  case " \$SMX_REFUSED " in *" \$word "*) exit 100 ;; esac
done
echo apt-get "\$@" >>$work/calls
END
chmod +x "$work/stubs/apt-get"
for tool in bash sh env cat dirname nproc sed rm mkdir awk grep mktemp sort wc mv cp cut tr paste; do ln -s "$(command -v "$tool")" "$work/stubs/$tool"; done
for program in default/bin/softmax run/bin/softmax venv/bin/pip venv/bin/python; do stub "$work/build/$program" ':'; done
for target in "$source"/tests/fuzz/fuzz_*.c; do
  target=${target##*/}
  stub "$work/build/asan/bin/${target%.c}" ':'
done
touch "$work/build/default/CMakeCache.txt"

# dev REFUSED VERB...: the packages REFUSED cannot be had
dev() {
  local refused=$1
  shift
  : >"$work/calls"
  env -i PATH="$work/stubs" HOME="$work" SMX_BUILD_ROOT="$work/build" SMX_REFUSED="$refused" "$source/dev" "$@" >"$work/log" 2>&1
}

optional='libpthreadpool-dev libxnnpack-dev libdnnl-dev librsvg2-bin chromium'
tried=0
while read -r verb; do
  arguments=()
  [ "$verb" = sanitize ] && arguments=(asan)
  case $verb in clean | format) continue ;; esac # it would remove the stubs; it would format the sources
  dev "$optional" "$verb" ${arguments[@]+"${arguments[@]}"} || fail "./dev $verb stops where only optional packages are missing"
  tried=$((tried + 1))
  ! grep -E "install.*($(tr ' ' '|' <<<"$optional"))" "$work/calls" || fail "$verb: a stub installed what it refuses"
done < <("$source/dev" | sed -nE 's/^  ([a-z0-9-]+) .*/\1/p')
[ "$tried" -ge 10 ] || fail "$tried verbs only"

dev "$optional" bench || fail "bench"
for name in XNNPACK oneDNN; do
  grep -q "^dev: left out: $name (" "$work/log" || fail "bench does not say that $name is left out"
done
grep -q 'report.py' "$work/calls" || fail "bench does not run"
dev chromium test -R nothing || fail "test"
grep -q '^dev: left out: Chromium (chromium)' "$work/log" || fail "test does not say that Chromium is left out"
! dev 'cmake ninja-build libbenchmark-dev' bench || fail "bench goes on without Google Benchmark"
grep -q 'Google Benchmark (libbenchmark-dev)' "$work/log" || fail "bench does not name what is missing"
! dev '' nonsense || fail "no such verb"
dev '' clean || fail "clean"
echo "$tried verbs"
