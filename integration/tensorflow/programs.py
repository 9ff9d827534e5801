"""The programs that driver.py runs.

A program builds a graph, with the parts under test on a device that the test names, runs it, and returns what a client sees as plain values. The
test runs it twice, on a device of Tryst and on one of TensorFlow, and compares.
"""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

ALL = {}


def program(f):
    """Registers a program by its name."""
    ALL[f.__name__] = f
    return f


def plain(x):
    """What JSON needs for a value of NumPy."""
    if isinstance(x, bytes):
        return {"bytes": x.hex()}
    if isinstance(x, np.generic):
        return plain(x.item()) if isinstance(x.item(), (complex, bytes)) else x.item()
    if isinstance(x, complex):
        return [x.real, x.imag]
    if isinstance(x, np.ndarray):
        return {"dtype": str(x.dtype), "shape": list(x.shape), "values": x.flatten().tolist()}
    raise TypeError(f"{type(x)}: not plain")


def config(chief, *devices, **options):
    """The configuration of a session that sees only the tasks of the devices, and the chief."""
    c = v1.ConfigProto(**options)
    c.device_filters.extend({chief.device, *devices})
    return c


def dense_model(variables):
    """A classifier of two dense layers over fixed data, as a loss."""
    random = np.random.RandomState(7)
    x = random.standard_normal((64, 20)).astype(np.float32)
    y = random.randint(0, 5, 64)
    with v1.variable_scope("model", use_resource=variables == "resource"):
        w1 = v1.get_variable("w1", [20, 32])
        b1 = v1.get_variable("b1", [32], initializer=v1.zeros_initializer())
        w2 = v1.get_variable("w2", [32, 5], initializer=v1.truncated_normal_initializer(stddev=0.3))
        b2 = v1.get_variable("b2", [5], initializer=v1.zeros_initializer())
    hidden = tf.nn.relu(tf.matmul(tf.constant(x), w1) + b1)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.constant(y), logits=tf.matmul(hidden, w2) + b2))


OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.05, 0.9),
    "nesterov": lambda: v1.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "adam": lambda: v1.train.AdamOptimizer(0.01),
}


@program
def train(chief, ps, optimizer="adam", variables="ref", steps=200):
    """Trains the dense model on the chief, with its variables on the job ps. Returns the losses."""
    with v1.device(v1.train.replica_device_setter(ps_tasks=1, ps_device=ps, worker_device=chief.device)):
        loss = dense_model(variables)
        step = v1.train.get_or_create_global_step()
        minimize = OPTIMIZERS[optimizer]().minimize(loss, global_step=step)
        init = v1.global_variables_initializer()
    with v1.Session(chief.target, config=config(chief, ps)) as session:
        session.run(init)
        losses = [session.run([loss, minimize])[0] for _ in range(steps)]
        return {"losses": losses, "step": session.run(step)}
