"""The chief of a cluster, and the Python client of its sessions: it runs programs for a Go test.

    driver.py CLUSTER JOB TASK

CLUSTER is JSON: the tasks by job. The process starts TensorFlow's server for one of them and prints "ready". After that each line on its standard
input is a request, {"program": NAME, "args": {...}}. For each the process prints a line of JSON: {"value": ...}, or {"code": ..., "message": ...}
when the program ends with an error of TensorFlow. A program may print lines "event NAME" before that, and wait for a line in reply.

The programs are the functions of programs.py and the modules that it names. The process ends with its standard input.
"""

import json
import os
import sys
import traceback

import tensorflow as tf

import programs

v1 = tf.compat.v1
# The programs are of the kind that TensorFlow 1 ran: reference variables, and loops of Enter and Exit, unless a program asks for others.
v1.disable_v2_behavior()


def out(line):
    print(line, flush=True)


class Chief:
    """What a program gets: the master's address, and the test to talk to."""

    def __init__(self, cluster, job, task):
        self.cluster, self.job, self.task = cluster, job, task
        config = v1.ConfigProto()
        # The leader of collectives, if a program uses them. It resolves the groups of devices.
        config.experimental.collective_group_leader = f"/job:{sorted(cluster)[-1]}/replica:0/task:0"
        self.server = tf.distribute.Server(cluster, job_name=job, task_index=task, protocol="grpc", config=config)
        self.target = self.server.target
        self.device = f"/job:{job}/task:{task}"

    def event(self, name):
        """Tells the test that the program has come to a point, and waits for its reply."""
        out("event " + name)
        return sys.stdin.readline().strip()


def run(chief, request):
    try:
        with tf.Graph().as_default():
            v1.set_random_seed(1)
            return {"value": programs.ALL[request["program"]](chief, **request.get("args", {}))}
    except tf.errors.OpError as e:
        return {"code": e.error_code, "message": e.message, "value": None}
    except Exception:  # a fault of the program
        return {"fault": traceback.format_exc(), "value": None}


def main():
    chief = Chief(json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    out("ready")
    while line := sys.stdin.readline():
        out(json.dumps(run(chief, json.loads(line)), default=programs.plain))
    os._exit(0)  # a tf.distribute.Server cannot be stopped in any other way


main()
