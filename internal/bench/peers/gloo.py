"""One of the processes that all-reduce by torch.distributed over gloo, for make bench-peers.

It speaks as the members of Tryst do (allreduce.go): JSON values on stdin and stdout, a setup, an
answer with the version, then commands until stdin ends. The first command makes the process group.
The sum of each size is checked once.
"""

import datetime
import json
import os
import socket
import sys
import time
import warnings

WAIT = datetime.timedelta(minutes=1)  # answerWait in limits.go


def loopback():
    """The name of the loopback interface: by default gloo takes that of the host's name."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in names if name.startswith("lo")), names[0])


class Member:
    def __init__(self, setup):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback())
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        warnings.simplefilter("ignore")  # the first line on stderr is the reason of an end
        import torch
        import torch.distributed

        self.torch, self.dist = torch, torch.distributed
        self.rank, self.members, self.store = setup["rank"], setup["members"], setup["store"]
        self.tensors = {}  # by size

    def hello(self):
        return {"bare": {"version": f"torch {self.torch.__version__}, gloo"}}

    def join(self):
        store = self.dist.FileStore(self.store, self.members)
        self.dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.members, timeout=WAIT)

    def tensor(self, size):
        """The tensor of a size. Its content is 0: all_reduce writes into it, and sums would grow."""
        if size not in self.tensors:
            t = self.torch.full((size // 4,), self.rank + 1, dtype=self.torch.float32)
            self.dist.all_reduce(t)
            if not bool((t == self.members * (self.members + 1) // 2).all()):
                raise RuntimeError(f"the sum of {size} bytes is wrong")
            self.tensors[size] = t.zero_()
        return self.tensors[size]

    def obey(self, command):
        r = command["reduce"]
        if not self.dist.is_initialized():
            self.join()
        t = self.tensor(r["bytes"])
        now = time.perf_counter_ns
        rounds = []
        for _ in range(r["warm"] + r["rounds"]):
            self.dist.barrier()
            begin = now()
            self.dist.all_reduce(t)
            rounds.append(now() - begin)
        return {"rounds": rounds[r["warm"]:]}


def main():
    out = os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # what gloo prints is no answer

    def answer(value):
        out.write(json.dumps(value) + "\n")
        out.flush()

    member = Member(json.loads(sys.stdin.readline())["reduce"])
    answer(member.hello())
    for line in sys.stdin:
        try:
            answer(member.obey(json.loads(line)))
        except Exception as error:
            answer({"error": f"{type(error).__name__}: {error}"})
    os._exit(0)  # the end of a process group waits for the other members


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")
