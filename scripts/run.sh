#!/usr/bin/env bash
# The main job, end to end: run.sh TRYST DIR [MODEL]
# One process publishes a checkpoint with the layout of MODEL (gpt2), and others pull it over gRPC and over each device of verbs: TCP,
# shared memory, and RDMA: an RDMA port if there is an active one, else RoCE in user space. Each checks every tensor's digest; what was
# moved, how fast and by which route is printed, a row for each. That not all came over the device is a failure. Works in DIR, on a
# port of the loopback that the system chooses.
set -euo pipefail
tryst=$1
dir=$2
name=${3:-gpt2}

model=$dir/$name.safetensors
pulled=$dir/pulled.safetensors
rows=$dir/rows
address=$dir/address
log=$dir/server.log
start_seconds=30 # to read and digest the checkpoint from a slow disk
server=

finish() {
  status=$?
  trap - EXIT
  [[ -z $server ]] || { kill "$server" && wait "$server"; } 2>/dev/null || true
  rm -f "$model" "$pulled" "$pulled.part" "$pulled.part.journal" "$address" "$rows"
  if ((status)) && [[ -s $log ]]; then
    echo "the server's log ($log):" >&2
    tail -n 40 "$log" >&2
  fi
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir -p "$dir"
rm -f "$address"
echo "generate $model"
"$tryst" gen --model "$name" --out "$model"

echo "publish it"
"$tryst" serve --publish "$name=$model" --transport verbs --listen 127.0.0.1:0 --address-file "$address" >"$log" 2>&1 &
server=$!
for ((tenths = 0; ; tenths++)); do
  [[ ! -s $address ]] || break
  kill -0 "$server" 2>/dev/null || { echo "the server ended before it was ready" >&2; exit 1; }
  ((tenths < start_seconds * 10)) || { echo "the server was not ready after $start_seconds s" >&2; exit 1; }
  sleep 0.1
done

# One table of all pulls: a heading, and the row of each. The first argument is what the row must have.
pull() {
  local route=$1
  shift
  "$tryst" pull --from "$(<"$address")" --out "$pulled" --force "$@" | sed -n 1,2p >>"$rows" # sed reads to the end; head would not, and break the pipe
  local last
  last=$(tail -n 1 "$rows")
  if [[ $last != *" over $route"* || $last == *,*' over '* ]]; then # another route, which is no failure of the pull
    echo "not all came over $route, but: $last; $tryst doctor --transport verbs says what keeps it from that" >&2
    exit 1
  fi
}
rm -f "$rows"
echo "pull it from $(<"$address") over gRPC"
pull grpc --transport grpc
for provider in tcp shm libibverbs,roce; do
  echo "pull it over verbs, provider $provider"
  pull verbs --transport verbs --provider "$provider" --fallback none
done
echo "the files are removed; \"$tryst gen --model $name --out FILE\" makes the checkpoint again"
awk -F '  +' '
  NR > 1 && NR % 2 { next } # further headings
  { rows++; for (i = 1; i <= NF; i++) { cell[rows, i] = $i; if (length($i) > width[i]) width[i] = length($i) } }
  END { for (r = 1; r <= rows; r++) { for (i = 1; i < NF; i++) printf "%-" width[i] "s  ", cell[r, i]; print cell[r, NF] } }
' "$rows"

# The server must also stop when it is asked to, and say that all went well.
kill -TERM "$server"
if wait "$server"; then server=; else
  echo "the server ended with status $?" >&2
  server=
  exit 1
fi
