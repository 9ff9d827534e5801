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
profile=usr/share/containers/seccomp.json
[[ -e /$profile || -e build/containers-common/$profile ]] || lines+=$'\n'"the seccomp profile of containers, from a package, into build/containers-common (36 kB)"
if [[ -n $lines ]]; then
  echo "make test-all will install:"
  sed '/^$/d; s/^/  /' <<<"$lines"
fi
