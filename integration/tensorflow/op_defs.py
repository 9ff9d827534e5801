"""Writes TensorFlow's definitions of the ops that are named on stdin, one a line.

Each is written as its length, 4 bytes, the lowest first, and the serialised OpDef; the length is 0 for an
op that this TensorFlow does not have.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow  # noqa: F401  registers the ops
from tensorflow.python.framework import op_def_registry

for line in sys.stdin:
    op = op_def_registry.get(line.strip())
    data = b"" if op is None else op.SerializeToString()
    sys.stdout.buffer.write(len(data).to_bytes(4, "little") + data)
