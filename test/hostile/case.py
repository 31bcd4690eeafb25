# SPDX-License-Identifier: Apache-2.0
"""One hostile input, and the words it is written with."""

import os
import shutil

# Names that the tools are told to write to. None of them may be made, or changed, by a run that fails.
OUTPUTS = {"out.plan", "out.onnx", "out.safetensors", "out.jsonl", "out.npz", "out.profile.json"}
OLD_OUTPUT = b"what stood here before\n"


class Case:
    """`files`: name -> bytes, or a function of (path, tools) that makes it. `exit` and `pattern`: what is expected."""

    def __init__(self, name, argv, exit, pattern, files=None):
        self.name, self.argv, self.exit, self.pattern = name, argv, exit, pattern
        self.files = files or {}

    def prepare(self, folder, tools):
        for name, content in self.files.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if callable(content):
                content(path, tools)
            else:
                with open(path, "wb") as file:
                    file.write(content)


def material(name):
    """A file or folder that make_material() left in the scratch folder."""

    def place(path, tools):
        source = os.path.join(tools.scratch, "material", name)
        (shutil.copytree if os.path.isdir(source) else shutil.copyfile)(source, path)

    return place


def changed(name, change):
    """The same file, its bytes put through `change`."""

    def place(path, tools):
        with open(os.path.join(tools.scratch, "material", name), "rb") as file:
            data = file.read()
        with open(path, "wb") as file:
            file.write(change(data))

    return place


def flip(offset):
    """Turns one bit; a fraction of the file's length, or a position (negative: from the end)."""

    def change(data):
        at = int(len(data) * offset) if isinstance(offset, float) else offset % len(data)
        return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1:]

    return change


def cut(fraction):
    return lambda data: data[:int(len(data) * fraction)]


def fifo(path, _):
    os.mkfifo(path)


def directory(path, _):
    os.makedirs(path)


def link_to(target):
    return lambda path, _: os.symlink(target, path)
