"""Asks the TensorFlow master at an address for a session of its cluster, and says what came of it.

    session.py ADDRESS [--only-task-0]

It runs a small graph on task 0 and prints its value, or the error, as one line of JSON.
"""

import json
import sys

import tensorflow as tf

v1 = tf.compat.v1
config = v1.ConfigProto()
if "--only-task-0" in sys.argv[2:]:
    config.device_filters.append("/job:worker/task:0")
with tf.Graph().as_default(), v1.Session("grpc://" + sys.argv[1], config=config) as session:
    with tf.device("/job:worker/task:0"):
        six = tf.constant(2) * tf.constant(3)
    try:
        print(json.dumps({"value": int(session.run(six))}), flush=True)
    except tf.errors.OpError as e:
        print(json.dumps({"code": e.error_code, "message": e.message}), flush=True)
