"""Trains a small classifier whose variables are on a parameter server.

    train.py [--ps HOST:PORT] [--chief HOST:PORT] [--steps N]

TensorFlow computes the loss and the gradients in this process, the chief. replica_device_setter puts each variable on the job ps, which also applies
the gradients, by the ops of the optimizer.
"""

import argparse

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_v2_behavior()
v1.set_random_seed(0)

parser = argparse.ArgumentParser()
parser.add_argument("--ps", default="127.0.0.1:2222", help="address of the parameter server")
parser.add_argument("--chief", default="127.0.0.1:2223", help="address of this process")
parser.add_argument("--steps", type=int, default=500)
args = parser.parse_args()

cluster = tf.train.ClusterSpec({"ps": [args.ps], "chief": [args.chief]})
server = tf.distribute.Server(cluster, job_name="chief", task_index=0)

# Points in a plane, and the ring around the origin that each is in.
random = np.random.RandomState(0)
points = random.uniform(-2, 2, (4096, 2)).astype(np.float32)
rings = np.minimum(np.hypot(points[:, 0], points[:, 1]), 2.99).astype(np.int32)

with v1.device(v1.train.replica_device_setter(cluster=cluster, worker_device="/job:chief/task:0")):
    x, y = v1.placeholder(tf.float32, [None, 2]), v1.placeholder(tf.int32, [None])
    layer = x
    for i, width in enumerate([64, 64, 3]):
        w = v1.get_variable(f"w{i}", [layer.shape[1], width])
        b = v1.get_variable(f"b{i}", [width], initializer=v1.zeros_initializer())
        layer = tf.matmul(layer, w) + b
        if width != 3:
            layer = tf.nn.relu(layer)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=layer))
    correct = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(layer, 1, output_type=tf.int32), y), tf.float32))
    train = v1.train.AdamOptimizer(0.01).minimize(loss)
    init = v1.global_variables_initializer()

for v in v1.global_variables()[:2]:
    print(v.op.name, "is on", v.device)
with v1.Session(server.target) as session:
    session.run(init)
    for step in range(1, args.steps + 1):
        batch = random.randint(0, len(points), 128)
        value, _ = session.run([loss, train], {x: points[batch], y: rings[batch]})
        if step % 100 == 0 or step == 1:
            print(f"step {step}: loss {value:.4f}", flush=True)
    print(f"{session.run(correct, {x: points, y: rings}):.1%} of the points are in the ring that the model says")
