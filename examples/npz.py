# SPDX-License-Identifier: Apache-2.0
"""Float arrays of a .npz file with the standard library alone: what `amprun --fetch-out` writes."""

import array
import ast
import struct
import zipfile


def floats(path, name):
    """(shape, array of floats) of a little-endian fp32 member in row-major order."""
    with zipfile.ZipFile(path) as archive:
        data = archive.read(name + ".npy")
    (length,) = struct.unpack_from("<H", data, 8)
    header = ast.literal_eval(data[10:10 + length].decode("latin-1"))
    if header["descr"] != "<f4" or header["fortran_order"]:
        raise ValueError(f"{path}: '{name}' is {header}")
    values = array.array("f")
    values.frombytes(data[10 + length:])
    return header["shape"], values
