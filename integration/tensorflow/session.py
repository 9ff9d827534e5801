"""Opens a session at a TensorFlow master and runs a small graph on task 0.

    session.py ADDRESS [--only-task-0]

It prints the value of the graph, or the error, as one line of JSON. With --only-task-0 the session excludes the other tasks.
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
