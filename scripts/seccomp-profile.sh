#!/usr/bin/env bash
# Puts the default seccomp profile of containers, which the tests of verbs/shm and verbs/tcp run under, into build/containers-common, from Debian's
# or Ubuntu's package and without root. Where the package is installed there is nothing to do.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=usr/share/containers/seccomp.json dir=build/containers-common
if [[ -e /$profile || -e $dir/$profile ]]; then
  exit
fi
{ command -v apt-get && command -v dpkg; } >/dev/null || {
  echo "there is no apt-get: install containers-common, which has /$profile, by other means" >&2
  exit 1
}
rm -rf "$dir"
mkdir -p "$dir"
# Without lists of packages, only root can get them.
(cd "$dir" && { apt-get download -qq golang-github-containers-common 2>/dev/null || { apt-get update -qq && apt-get download -qq golang-github-containers-common; }; })
dpkg -x "$dir"/*.deb "$dir"
test -e "$dir/$profile" || { echo "the package golang-github-containers-common has no $profile" >&2; exit 1; }
