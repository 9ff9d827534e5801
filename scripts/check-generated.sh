#!/usr/bin/env bash
# Regenerates the generated code and fails, with the difference, when that changed a file. What is compared is the tree before
# and after, so it also works on a tree with other changes; the regenerated files are left in place, to be looked at and kept.
set -euo pipefail

# Every file that git knows or would take, with its content's hash; one that is deleted but not yet committed is left out.
state() {
  git ls-files --cached --others --exclude-standard -- '*.go' '*.proto' | sort -u | while IFS= read -r file; do
    if [[ -f $file ]]; then git hash-object --no-filters "$file" | tr '\n' ' ' && echo "$file"; fi
  done
}

before=$(state)
make --no-print-directory generate
if ! changed=$(diff <(echo "$before") <(state)); then
  echo "generated files are not current; 'make generate' changes these:" >&2
  awk '/^[<>]/ { print $3 }' <<<"$changed" | sort -u >&2
  exit 1
fi
echo "generated files are current"
