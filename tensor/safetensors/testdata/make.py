"""Makes the .safetensors files of this directory with the reference
implementation, so that the tests compare with bytes that were not written here.

    pip install safetensors==0.8.0 && python make.py
"""

import ctypes
import struct

from safetensors import TensorSpec, serialize_file

# Every type of the format that package tensor has, by the reference's name,
# with the bytes of one element.
DTYPES = {
    "bool": 1, "uint8": 1, "int8": 1, "float8_e5m2": 1, "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "complex64": 8,
    "float64": 8, "int64": 8, "uint64": 8,
}


alive = []  # the specs hold addresses only


def entry(dtype, shape, data):
    memory = ctypes.create_string_buffer(data, max(len(data), 1))
    alive.append(memory)
    return TensorSpec(dtype=dtype, shape=shape, data_ptr=ctypes.addressof(memory), data_len=len(data))


# Two elements each, whose bytes count up from 0 (bool: 0, 1).
serialize_file(
    {"t." + d: entry(d, [2], bytes(range(2 * n))) for d, n in DTYPES.items()},
    "dtypes.safetensors",
)

# Scalar, empty, several dimensions, a name that needs escapes, metadata.
serialize_file(
    {
        "scalar": entry("float32", [], struct.pack("<f", 1.5)),
        "empty": entry("float16", [3, 0], b""),
        "matrix": entry("int32", [2, 3], struct.pack("<6i", 1, -2, 3, -4, 5, -6)),
        'quo"te\\<&>\t\u00e4\U0001F600': entry("uint8", [1], b"\x07"),
        "bytes": entry("uint8", [1, 3], b"abc"),
    },
    "shapes.safetensors",
    {"format": "pt"},
)

serialize_file({}, "none.safetensors")

# A type that package tensor lacks (Packed): two elements in a byte, four in all.
serialize_file({"w.fp4": entry("float4_e2m1fn_x2", [2], b"\x12\x34")}, "fp4.safetensors")
