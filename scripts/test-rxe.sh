#!/usr/bin/env bash
# The tests that need the kernel's Soft-RoCE: test-rxe.sh SOFT-ROCE PACKAGES FLAG... -- TESTARG...
# Of soft-roce/rxe-tests it runs those in PACKAGES, where TRYST_TEST_RXE says: vm, native, off, or auto, which is the VM or, where none
# is possible, nowhere. Then the last line is SKIPPED and the reason; with REQUIRED set that is a failure. REPORT is the command, with
# its flags, that makes a report of the events.
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
