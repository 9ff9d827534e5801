#!/usr/bin/env bash
# Makes cmd/tryst/default.pgo, by which the compiler decides what of the program is inlined: from the benchmarks that move
# tensors, over gRPC and the device in software here, over the kernel's Soft-RoCE in a VM.
#   scripts/profile.sh SOFT_ROCE VM_FLAGS...
# A profile names the binary: it is run from /tmp, here and there, so that no path of this machine is in it.
set -euo pipefail
softroce=$1
shift
go=${GO:-go}
dir=build/profile
rm -rf "$dir"
mkdir -p "$dir"
run=$(mktemp -d)
trap 'rm -rf "$run"' EXIT
CGO_ENABLED=1 CGO_CPPFLAGS="${CGO_CPPFLAGS:-} -DSHIM_HEADERS" "$go" build -trimpath -pgo=off -o "$dir/tryst" ./cmd/tryst
cp "$dir/tryst" "$run/tryst"

here=(--pairs 1 --pair-time 300ms --cpu-profile "$dir")
"$run/tryst" bench --transport grpc --only recv,recv-many,recv-whole "${here[@]}"
"$run/tryst" bench --transport verbs --provider roce --only verbs-beside-grpc,verbs-small "${here[@]}"
"$softroce" vm "$@" -- bash -ec "cp $dir/tryst /tmp/tryst
  /tmp/tryst bench --transport verbs --rdma-device rxe0 --peer-rdma-device rxe1 --only verbs-latency --pairs 1 --pair-time 1s --cpu-profile $dir
  /tmp/tryst bench --transport verbs --rdma-device rxe0 --peer-rdma-device rxe1 --only verbs-recv --size 64KiB,1MiB,16MiB --inflight 4 --pairs 1 --pair-time 1s --cpu-profile $dir"

"$go" tool pprof -proto "$dir"/*.pprof >cmd/tryst/default.pgo
ls -l cmd/tryst/default.pgo
