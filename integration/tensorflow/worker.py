"""Starts a stock TensorFlow worker: task 0 of a cluster whose task 1 is at the address given as an argument.

    worker.py PEER [--cache-rpc-response]

It prints "ready ADDRESS" when it listens. It ends with its standard input, so that it does not outlive the process that started it.
All that it sends over the network comes from TensorFlow's own C++ code.
"""

import os
import sys

import tensorflow as tf

config = tf.compat.v1.ConfigProto()
config.rpc_options.cache_rpc_response = "--cache-rpc-response" in sys.argv[2:]
server = tf.distribute.Server(
    {"worker": ["127.0.0.1:0", sys.argv[1]]}, job_name="worker", task_index=0, protocol="grpc", config=config
)
print("ready", server.target.removeprefix("grpc://"), flush=True)
sys.stdin.read()
os._exit(0)  # a tf.distribute.Server cannot be stopped in any other way
