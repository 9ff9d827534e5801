#!/usr/bin/env bash
# Runs each fuzz target of the given packages for the given time: fuzz.sh TIME PACKAGE...
# Go fuzzes one target of one package at a time, so they are found first. A crasher is written to the package's testdata, to
# be committed with the mend. All targets run, even after a failure.
set -euo pipefail
go=${GO:-go}
time=$1
shift

# go test -list prints the targets of a package, then its "ok" line.
targets=$("$go" test -list '^Fuzz' "$@" | awk '/^Fuzz/ { names[++n] = $1 } /^ok/ { for (i = 1; i <= n; i++) print $2, names[i]; n = 0 }')
if [[ -z $targets ]]; then
  echo "no fuzz target in $*" >&2
  exit 1
fi

# fuzz runs one target. Minimizing is kept short: by default it may take 60 s for each new input, which is what it takes where goroutines and
# random numbers give an input another coverage each time. When the time ends while a worker is in a slow input, go test fails with nothing but that its deadline is
# exceeded (go.dev/issue/75804): such a run is made again.
fuzz() {
  local out try
  for try in 1 2 3; do
    out=$("$go" test -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 50x "$1" </dev/null 2>&1) && { printf '%s\n' "$out"; return; }
    printf '%s\n' "$out"
    [[ $out == *'context deadline exceeded'* && $out != *'Failing input'* ]] || return 1
  done
  return 1
}

failed=()
while read -r package name; do
  echo "=== $package $name"
  fuzz "$package" "$name" || failed+=("$package $name")
done <<<"$targets"

echo "$(wc -l <<<"$targets") fuzz targets, ${#failed[@]} failed"
if ((${#failed[@]})); then
  printf '%s\n' "${failed[@]}"
  exit 1
fi
