#!/usr/bin/env bash
# Checks what deploy/ and .github/ have with the tools of those who read it: check-deploy.sh VENV. It needs go, and the requirements of
# deploy/requirements.txt in the virtual environment VENV. systemd-analyze is a part of systemd; without it the check of the
# unit is SKIPPED, and with REQUIRED set that is a failure. Files are made below build/deploy only.
set -euo pipefail
venv=$1
go=${GO:-go}
out=build/deploy
versions='1.29 1.33 1.37' # of Kubernetes: the newest that the schemas have, and two older ones
rm -rf "$out"
mkdir -p "$out"
problems=0

# check NAME COMMAND...: runs the command, whose output is shown when it fails. In a condition the shell does not stop at an
# error inside a function, so functions that are checked return each error.
check() {
  local name=$1 said
  shift
  if said=$("$@" 2>&1); then
    echo "ok      $name"
  else
    printf 'FAILED  %s\n%s\n' "$name" "$said"
    problems=$((problems + 1))
  fi
}

# silent COMMAND...: fails also when the command prints anything. systemd-analyze warns about a misspelled key and exits with 0.
silent() {
  local said
  said=$("$@" 2>&1) && [[ -z $said ]] && return
  printf '%s\n' "$said"
  return 1
}

# The build of the Containerfile's static image, with its flags.
build() {
  local command
  command=$(sed -n 's/^RUN \(CGO_ENABLED=0 go build .*\)/\1/p' deploy/Containerfile)
  [[ -n $command ]] || { echo "deploy/Containerfile has no static build"; return 1; }
  command=${command/ go build/ $go build}
  VERSION=v0.0.0-check bash -c "${command//\/out\//$out/}" || return 1
  [[ $(ldd "$out/tryst" 2>&1) =~ not\ a\ dynamic|statically\ linked ]] || { echo "the binary is not static"; return 1; }
  "$out/tryst" version | grep -q 'v0.0.0-check' || { echo "the binary does not have the version of the build"; return 1; }
}

# alone COMMAND...: as in the container, without root, capabilities and locked memory.
alone() {
  ulimit -l 0
  if (($(id -u) == 0)); then
    exec setpriv --reuid 65532 --regid 65532 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs "$@"
  fi
  exec "$@"
}

# A checkpoint goes over RoCE from a server that has no privilege to a puller that has none.
unprivileged() (
  dir=$(mktemp -d) server=
  trap 'code=$?; kill $server 2>/dev/null; wait; ((code == 0)) || sed "s/^/server: /" "$dir/log"; rm -rf "$dir"' EXIT
  touch "$dir/log"
  chmod 777 "$dir"
  cp "$out/tryst" "$dir/tryst" # the clone may be in a directory that only its owner reads
  verbs=(--transport verbs --provider roce --fallback none --rdma-device lo)
  (alone "$dir/tryst" gen --model tiny --out "$dir/tiny.safetensors") || return 1
  (alone "$dir/tryst" serve --listen 127.0.0.1:0 --address-file "$dir/address" --publish "$dir/tiny.safetensors" "${verbs[@]}") 2>"$dir/log" &
  server=$!
  for ((tenths = 300; ; tenths--)); do
    [[ ! -s $dir/address ]] || break
    kill -0 "$server" || return 1
    ((tenths > 0)) || { echo 'the server does not serve within 30 s'; return 1; }
    sleep 0.1
  done
  (alone "$dir/tryst" pull --from "$(<"$dir/address")" --out "$dir/copy.safetensors" --timeout 30s "${verbs[@]}") || return 1
  cmp "$dir/tiny.safetensors" "$dir/copy.safetensors"
)

unit() {
  sed "s|^ExecStart=/usr/local/bin/tryst |ExecStart=$PWD/$out/tryst |" deploy/systemd/tryst.service >"$out/tryst.service"
  silent systemd-analyze verify --man=no "$out/tryst.service"
}

check 'static build' build
check 'roce without privileges' unprivileged
check 'Containerfile' "$venv/bin/hadolint" deploy/Containerfile
# cert-manager and the Prometheus operator: kubernetes-validate has no schema of their kinds, and passes them.
check "types of other projects' kinds" "$go" -C tools/crds test -count=1 .
check "tool for other projects' kinds" "$go" -C tools/crds build -o "$PWD/$out/crds" .
for overlay in base overlays/roce overlays/rdma overlays/tls overlays/monitoring consumer; do
  file=$out/$(basename "$overlay").yaml
  check "kustomize $overlay" "$go" tool -modfile=tools/kustomize/go.mod kustomize build -o "$file" "deploy/kubernetes/$overlay"
  for version in $versions; do
    check "Kubernetes $version $overlay" "$venv/bin/kubernetes-validate" --strict -k "$version" "$file"
  done
  check "other projects' kinds $overlay" "$out/crds" "$file"
done
check 'man pages' "$go" -C tools/man test -count=1 .
# Without shellcheck and pyflakes, which not every machine has.
check 'workflows' "$go" tool -modfile=tools/actions/go.mod actionlint -shellcheck= -pyflakes= .github/workflows/*.yml
check 'alerts and dashboard' "$go" -C tools/rules test -count=1 .
if command -v systemd-analyze >/dev/null; then
  check 'unit' unit
  check 'sandbox of the unit' systemd-analyze security --offline=yes --threshold=25 --no-pager "$out/tryst.service"
else
  echo "SKIPPED the unit: there is no systemd-analyze (apt-get install systemd)"
  [[ -z ${REQUIRED:-} ]] || problems=$((problems + 1))
fi
((problems == 0)) || { echo "$problems checks of deploy/ failed" >&2; exit 1; }
