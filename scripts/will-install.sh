#!/usr/bin/env bash
# Prints what make test-all will install and download because it is missing: will-install.sh SOFT_ROCE
set -euo pipefail
softroce=$1

lines=$("$softroce" missing)
for pair in 'integration/roce/together scapy 20 MB' 'integration/tensorflow venv 300 MB'; do
  read -r tests name size <<<"$pair"
  requirements=$tests/requirements.txt dir=build/$name
  cmp -s "$requirements" "$dir/installed" || lines+=$'\n'"$(sed '/^#/d' "$requirements" | xargs), by pip into $dir ($size)"
done
if [[ -n $lines ]]; then
  echo "make test-all will install:"
  sed '/^$/d; s/^/  /' <<<"$lines"
fi
