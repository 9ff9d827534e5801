#!/usr/bin/env bash
# The main job, end to end: run.sh TRYST DIR
# One process publishes a checkpoint with the layout of GPT-2 small, a second one pulls it, checks each tensor's digest and
# prints what was moved and how fast. Works in DIR, on a port of the loopback that the system chooses.
set -euo pipefail
tryst=$1
dir=$2

model=$dir/gpt2.safetensors
pulled=$dir/pulled.safetensors
address=$dir/address
log=$dir/server.log
start_seconds=30 # to read and digest the checkpoint from a slow disk
server=

finish() {
  status=$?
  trap - EXIT
  [[ -z $server ]] || { kill "$server" && wait "$server"; } 2>/dev/null || true
  rm -f "$model" "$pulled" "$pulled.part" "$address"
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
"$tryst" gen --model gpt2 --out "$model"

echo "publish it"
"$tryst" serve --publish gpt2="$model" --listen 127.0.0.1:0 --address-file "$address" >"$log" 2>&1 &
server=$!
for ((tenths = 0; ; tenths++)); do
  [[ ! -s $address ]] || break
  kill -0 "$server" 2>/dev/null || { echo "the server ended before it was ready" >&2; exit 1; }
  ((tenths < start_seconds * 10)) || { echo "the server was not ready after $start_seconds s" >&2; exit 1; }
  sleep 0.1
done

echo "pull it from $(<"$address")"
"$tryst" pull --from "$(<"$address")" --out "$pulled" --force

# The server must also stop when it is asked to, and say that all went well.
kill -TERM "$server"
if wait "$server"; then server=; else
  echo "the server ended with status $?" >&2
  server=
  exit 1
fi
