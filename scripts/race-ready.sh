#!/usr/bin/env bash
# Fails, and says what would help, where the race detector cannot run: it needs a C compiler that can link, and a platform that has it.
set -euo pipefail
go=${GO:-go}

probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
# CC may hold arguments, so it is split.
# shellcheck disable=SC2046
if ! printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | $("$go" env CC) -x c -o "$probe/a" - >/dev/null 2>&1; then
  echo "the race detector needs a C compiler, and '$("$go" env CC)' does not work: on Debian and Ubuntu, apt-get install gcc libc6-dev" >&2
  exit 1
fi
if ! why=$("$go" list -race unsafe 2>&1 >/dev/null); then
  echo "the race detector cannot run here: ${why#go: }" >&2
  exit 1
fi
