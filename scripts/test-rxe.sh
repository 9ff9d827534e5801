#!/usr/bin/env bash
# Runs the tests that need the kernel's Soft-RoCE: test-rxe.sh SOFT-ROCE PACKAGES FLAG... -- TESTARG...
#
# It runs the tests of PACKAGES that soft-roce/rxe-tests lists. TRYST_TEST_RXE selects the place: vm,
# native, off, or auto (the VM if one is possible). If they cannot run, the last line of the output
# is SKIPPED with the reason, and with REQUIRED set the script fails. REPORT is the command, with its
# flags, that makes a report of the events.
set -euo pipefail
tool=$1
packages=$2
shift 2
flags=(-go "${GO:-go}" -pkg "$packages")
while [[ $1 != -- ]]; do
  flags+=("$1")
  shift
done
shift

place=$("$tool" where "${flags[@]}" -mode "${TRYST_TEST_RXE:-auto}")
case $place in
none) echo "no test of $packages needs Soft-RoCE" ;;
skip*)
  [[ -z ${REQUIRED:-} ]] || echo "the tests of Soft-RoCE must run here" >&2
  echo "SKIPPED the tests of Soft-RoCE: ${place#skip }"
  [[ -z ${REQUIRED:-} ]]
  ;;
*)
  read -ra report <<<"${REPORT:?}"
  exec "${report[@]}" "$tool" test "${flags[@]}" -mode "$place" -- "$@"
  ;;
esac
