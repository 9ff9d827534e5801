"""Makes arrays.npz with NumPy, so that the tests read bytes that were not
written here. Each member is one .npy file.

    pip install numpy==2.4.6 ml_dtypes==0.6.0 && python make.py
"""

import io
import zipfile

import ml_dtypes
import numpy as np

archive = zipfile.ZipFile("arrays.npz", "w", zipfile.ZIP_DEFLATED)


def add(name, array, version=None):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version, allow_pickle=True)
    archive.writestr(zipfile.ZipInfo(name + ".npy", (1980, 1, 1, 0, 0, 0)), file.getvalue(),
                     zipfile.ZIP_DEFLATED)


def counting(dtype, shape):
    """An array whose little-endian, row-major bytes count up from 0."""
    dtype = np.dtype(dtype).newbyteorder("<")
    count = int(np.prod(shape))
    return np.frombuffer(bytes(i % 256 for i in range(count * dtype.itemsize)), dtype).reshape(shape)


def swapped(array):
    return array.byteswap().view(array.dtype.newbyteorder(">"))


# "plain/TYPE-LAYOUT" holds counting bytes in the shape 2x3x4.
for t in "i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16".split():
    a = counting(t, (2, 3, 4))
    add(f"plain/{t}-c-little", a)
    add(f"plain/{t}-f-little", np.asfortranarray(a))
    add(f"plain/{t}-c-big", swapped(a))
    add(f"plain/{t}-f-big", np.asfortranarray(swapped(a)))
add("plain/b1", np.array([[True, False, True]]))

# "shape/..." holds counting int16.
for shape in [(), (0,), (5,), (3, 0), (1,), (2, 3), (1, 4, 1), (2, 1, 3, 2, 2)]:
    name = "x".join(map(str, shape)) or "scalar"
    add(f"shape/{name}", counting("i2", shape))
    if shape:  # asfortranarray makes a vector of a scalar
        add(f"shape/{name}-f", np.asfortranarray(counting("i2", shape)))
for major in (1, 2, 3):
    add(f"version/{major}", counting("i2", (2, 3)), (major, 0))

words = np.array([["a", "bc", ""], ["d\u00e9f", "\U0001F600", "x\0y"]])
add("text/U-little", words)
add("text/U-big", words.astype(words.dtype.newbyteorder(">")))
add("text/U-f", np.asfortranarray(words))
add("text/S", np.array([[b"a", b"bc", b""], [b"d\xe9f", b"\xff\xfe\xfd\xfc", b"x\0y"]]))

add("refused/object", np.array([1, "a"], dtype=object))
add("refused/structured", np.zeros(2, dtype=[("a", "<f4"), ("b", "<i8", (2,))]))
add("refused/void", np.zeros(2, dtype="V3"))
add("refused/bfloat16", np.zeros(2, dtype=ml_dtypes.bfloat16))
add("refused/datetime", np.zeros(2, dtype="M8[s]"))
add("refused/longdouble", np.zeros(2, dtype=np.longdouble))
archive.close()
