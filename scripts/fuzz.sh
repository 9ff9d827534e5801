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

failed=()
while read -r package name; do
  echo "=== $package $name"
  "$go" test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "$package" </dev/null || failed+=("$package $name")
done <<<"$targets"

echo "$(wc -l <<<"$targets") fuzz targets, ${#failed[@]} failed"
if ((${#failed[@]})); then
  printf '%s\n' "${failed[@]}"
  exit 1
fi
