#!/usr/bin/env bash
# Prints the flag that demands the header of libibverbs, where the C compiler finds it. Go's cache does not notice a header that came
# after a build (go help cache), but it does notice a flag.
set -euo pipefail
# CC may hold arguments, so it is split. That there is no Go is told by go-ready in the Makefile, once.
# shellcheck disable=SC2046
if printf '#include <infiniband/verbs.h>\n' | $("${GO:-go}" env CC 2>/dev/null) -E - >/dev/null 2>&1; then
  echo -DSHIM_HEADERS
fi
