"""A member of a group of collective operations: TensorFlow's server or its eager runtime.

    collectives.py session|eager CLUSTER TASK LEADER

CLUSTER is the JSON list of the addresses of job worker, LEADER the task that leads the groups. The process prints "ready" when it listens. In the mode
session, task 0 is the master too: it reads a line, runs each operation among all members in one session, and prints what it got as JSON. In the mode
eager each process runs the operations after a line, as the members 0 and 1 of the group 7 whose other member the test has. The process ends with its
standard input.
"""

import json
import os
import sys

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import tensorflow_server_pb2
from tensorflow.python.eager import context
from tensorflow.python.ops import collective_ops as co

v1 = tf.compat.v1


def values(dtype, n, rank):
    return (np.arange(n) % 7 * (rank + 1) + rank).astype(dtype)


def session(cluster, task, leader):
    config = v1.ConfigProto()
    config.experimental.collective_group_leader = leader
    server = tf.distribute.Server({"worker": cluster}, job_name="worker", task_index=task, config=config)
    print("ready", flush=True)
    if task != 0 or not sys.stdin.readline():
        return
    results, base = {}, 0
    for dtype, n in [("float32", 1), ("float32", 33), ("float32", 2000003), ("float64", 100), ("int32", 7), ("int64", 5000), ("float16", 1000)]:
        base += 10  # TensorFlow keeps the shape of an instance
        with tf.Graph().as_default():
            fetches = [[] for _ in range(5)]
            for rank in range(len(cluster)):
                with tf.device(f"/job:worker/task:{rank}/device:CPU:0"):
                    x = tf.constant(values(dtype, n, rank))
                    fetches[0].append(co.all_reduce(x, len(cluster), 1, base, "Add", "Div"))
                    fetches[1].append(co.all_reduce_v2(x, len(cluster), 1, base + 1, "Max", "Id"))
                    fetches[2].append(co.all_gather_v2(x, len(cluster), 1, base + 2))
                    if rank == 1:
                        fetches[3].append(co.broadcast_send(x, x.shape, x.dtype, len(cluster), 1, base + 3))
                        fetches[4].append(co.broadcast_send_v2(x, len(cluster), 1, base + 4))
                    else:
                        fetches[3].append(co.broadcast_recv([n], x.dtype, len(cluster), 1, base + 3))
                        fetches[4].append(co.broadcast_recv_v2([n], x.dtype, len(cluster), 1, base + 4))
            options = v1.RunOptions()
            options.experimental.collective_graph_key = base
            with v1.Session(server.target, config=config) as s:
                for _ in range(2):
                    got = s.run(fetches, options=options)
        # The checksum of each result: the test compares them with those of TensorFlow alone.
        results[f"{dtype} {n}"] = [[[str(v.dtype), len(v), float(np.sum(v, dtype=np.float64)), float(v[-1])] for v in of] for of in got]
    print(json.dumps(results), flush=True)


def eager(cluster, task, leader):
    ctx = context.context()
    ctx.configure_collective_ops(collective_leader=leader)
    server = tensorflow_server_pb2.ServerDef(
        cluster=tf.train.ClusterSpec({"worker": cluster}).as_cluster_def(), job_name="worker", task_index=task, protocol="grpc"
    )
    server.default_session_config.experimental.collective_group_leader = leader
    ctx.enable_collective_ops(server)
    ctx.ensure_initialized()
    print("ready", flush=True)
    if not sys.stdin.readline():
        return
    with tf.device("CPU:0"):
        x = tf.constant(values("float32", 1000, task))
        mean = co.all_reduce_v2(x, len(cluster), 7, 1, "Add", "Div")
        all = co.all_gather_v2(x, len(cluster), 7, 2)
        sent = co.broadcast_send_v2(x, len(cluster), 7, 3) if task == 1 else co.broadcast_recv_v2([1000], tf.float32, len(cluster), 7, 3)
    print(json.dumps([v.numpy().tolist() for v in (mean, all, sent)]), flush=True)


mode = {"session": session, "eager": eager}[sys.argv[1]]
mode(json.loads(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
sys.stdin.read()
os._exit(0)  # a tf.distribute.Server cannot be stopped in any other way
