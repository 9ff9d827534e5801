"""One of two processes that move bytes by NIXL, for make bench-peers.

It speaks as the processes of the bare baselines do (bare.go, peer.go): JSON values on stdin
and stdout, a setup, an answer that says where it serves, then commands until stdin ends. The
serving process registers one buffer for each size. The receiving one reads it into as many
buffers as there are reads in flight, and checks the content of each once.
"""

import base64
import ctypes
import glob
import importlib.metadata
import json
import mmap
import os
import sys
import time

SUB_BITS = 6  # as in histogram.go


def part(ns):
    shift = max(ns.bit_length() - SUB_BITS - 1, 0)
    return (shift << SUB_BITS) + (ns >> shift)


def memory(size):
    """Anonymous pages, all of them present, and their address."""
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.write(b"\0" * size)
    return pages, ctypes.addressof(ctypes.c_char.from_buffer(pages))


def content(size):
    return (b"\x5a\xc3\x17\xe8" * (size // 4 + 1))[:size]


def ucx_version():
    """The version of the UCX that NIXL brings along."""
    import nixl_cu12

    top = os.path.dirname(os.path.dirname(nixl_cu12.__file__))
    for path in glob.glob(os.path.join(top, "nixl_cu12.libs", "libucp-*")):
        ucp = ctypes.CDLL(path)
        ucp.ucp_get_version_string.restype = ctypes.c_char_p
        return ucp.ucp_get_version_string().decode()
    return "of unknown version"


class Process:
    def __init__(self, name):
        import nixl_cu12 as nixl

        self.agent = nixl.nixl_agent(name, nixl.nixl_agent_config(backends=[]))
        # UCX's shared memory does not detect that a peer has failed, and is not used by an
        # endpoint that asks for it.
        mode = "none" if "shm" in os.environ.get("UCX_TLS", "") else "peer"
        self.agent.create_backend("UCX", {"ucx_error_handling_mode": mode})
        self.kept = []

    def register(self, size):
        pages, address = memory(size)
        self.kept.append(pages)
        if self.agent.register_memory([(address, size, 0, "")], "DRAM") is None:
            raise RuntimeError(f"NIXL does not register {size} bytes")
        return pages, address


class Server(Process):
    def __init__(self, sizes):
        super().__init__(f"server-{os.getpid()}")
        self.where = {}
        for size in sizes:
            pages, self.where[size] = self.register(size)
            pages.seek(0)
            pages.write(content(size))

    def hello(self):
        version = f"NIXL {importlib.metadata.version('nixl-cu12')} over UCX {ucx_version()}"
        metadata = base64.b64encode(self.agent.get_agent_metadata()).decode()
        return {"bare": {"version": version, "opaque": json.dumps({"metadata": metadata, "where": self.where})}}

    def obey(self, _):
        return {}


class Receiver(Process):
    def __init__(self, opaque):
        super().__init__(f"receiver-{os.getpid()}")
        there = json.loads(opaque)
        self.peer = self.agent.add_remote_agent(base64.b64decode(there["metadata"]))
        if isinstance(self.peer, bytes):
            self.peer = self.peer.decode()
        self.where = {int(size): address for size, address in there["where"].items()}
        self.reads = {}  # handles by size

    def hello(self):
        return {}

    def prepare(self, size, count):
        handles = self.reads.setdefault(size, [])
        while len(handles) < count:
            pages, address = self.register(size)
            to = self.agent.get_xfer_descs([(address, size, 0)], "DRAM")
            source = self.agent.get_xfer_descs([(self.where[size], size, 0)], "DRAM")
            handle = self.agent.initialize_xfer("READ", to, source, self.peer)
            handles.append(handle)
            state = self.begin(handle)
            while state == "PROC":
                state = self.state(handle)
            if pages[:] != content(size):
                raise RuntimeError(f"{size} bytes arrived with wrong content")
        return handles[:count]

    def begin(self, handle):
        return self.ok(self.agent.transfer(handle))

    def state(self, handle):
        return self.ok(self.agent.check_xfer_state(handle))

    @staticmethod
    def ok(state):
        if state not in ("DONE", "PROC"):
            raise RuntimeError(f"a read failed: {state}")
        return state

    def obey(self, command):
        r = command["run"]
        handles = self.prepare(r["size"], r["inflight"])
        now = time.perf_counter_ns
        begin = now()
        until = begin + r["time"]
        latencies = {}
        started = [0] * len(handles)
        states = [""] * len(handles)

        def post(i):
            started[i] = now()
            states[i] = self.begin(handles[i])

        for i in range(len(handles)):
            post(i)
        open_reads = set(range(len(handles)))
        while open_reads:
            for i in list(open_reads):
                if states[i] != "DONE":
                    states[i] = self.state(handles[i])
                if states[i] != "DONE":
                    continue
                end = now()
                p = part(end - started[i])
                latencies[p] = latencies.get(p, 0) + 1
                if end < until:
                    post(i)
                else:
                    open_reads.discard(i)
        took = now() - begin
        count = sum(latencies.values())
        score = count / (took / 1e9)
        if r.get("median"):
            score = 1e9 / median(latencies, count)
        return {"run": {"score": score, "count": count, "time": took, "latencies": latencies, "mallocs": 0}}


def median(latencies, count):
    """The middle of the part that has the median, in ns."""
    rank = count // 2
    for p in sorted(latencies):
        rank -= latencies[p]
        if rank < 0:
            break
    if p < 2 << SUB_BITS:
        return max(p, 1)
    shift = (p >> SUB_BITS) - 1
    return ((p - (shift << SUB_BITS)) << shift) + (1 << shift) // 2


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what NIXL prints is no answer

    def answer(value):
        out.write(json.dumps(value) + "\n")
        out.flush()

    setup = json.loads(sys.stdin.readline())
    there = (setup.get("bare") or {}).get("from")
    process = Receiver(there["opaque"]) if there else Server(setup.get("sizes") or [])
    answer(process.hello())
    for line in sys.stdin:
        try:
            answer(process.obey(json.loads(line)))
        except Exception as error:
            answer({"error": f"{type(error).__name__}: {error}"})
    out.flush()
    os._exit(0)  # NIXL's destructors wait for the peer


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")
