"""Asks a TensorFlow worker, as the master, for a session of its cluster, and says what came of it.

    session.py ADDRESS [--only-task-0]

It prints one line: "ok", or the code and the text of the error as JSON.
"""

import json
import sys

import tensorflow as tf

v1 = tf.compat.v1
config = v1.ConfigProto()
if "--only-task-0" in sys.argv[2:]:
    config.device_filters.append("/job:worker/task:0")
with tf.Graph().as_default(), v1.Session("grpc://" + sys.argv[1], config=config) as session:
    try:
        devices = [[d.name, d.device_type, d.memory_limit_bytes, d.incarnation] for d in session.list_devices()]
        with tf.device("/job:worker/task:0"):
            six = tf.constant(2) * tf.constant(3)
        print(json.dumps({"devices": devices, "value": int(session.run(six))}))
    except tf.errors.OpError as e:
        print(json.dumps({"code": e.error_code, "message": e.message}))
