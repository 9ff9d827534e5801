#!/usr/bin/env bash
# Prints -race where the race detector can run: on a platform that has it, with a C compiler that can link. Elsewhere it
# prints nothing, and says on stderr why and what would help.
set -euo pipefail
go=${GO:-go}

if ! why=$("$go" list -race unsafe 2>&1 >/dev/null); then
  echo "tests run without the race detector: ${why#go: }" >&2
  exit
fi
probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
# CC may hold arguments, so it is split.
# shellcheck disable=SC2046
if printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | $("$go" env CC) -x c -o "$probe/a" - >/dev/null 2>&1; then
  echo -race
else
  echo "tests run without the race detector: no working C compiler ('$("$go" env CC)'); on Debian and Ubuntu: apt-get install gcc libc6-dev" >&2
fi
