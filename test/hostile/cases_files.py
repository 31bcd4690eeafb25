# SPDX-License-Identifier: Apache-2.0
"""Files of our own, damaged or forged: plans, checkpoints, safetensors."""

import json
import os
import struct
import subprocess

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import cases_model
from case import Case, changed, cut, directory, fifo, flip, link_to, material

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RUN = ["amprun", "p.plan", "--data", "x=random", "--data", "target=random", "--steps", "4", "--save-weights", "out.safetensors", "-q"]
MESSAGES = {}


def load_messages(tools):
    """The plan's and the checkpoint's own schemas: a forged file has right checksums and a wrong content."""
    for name, source in (("Header", "runtime/plan/plan.proto"), ("Manifest", "runtime/checkpoint.proto")):
        out = os.path.join(tools.scratch, name + ".pb")
        subprocess.run(["protoc", f"-I{ROOT}", f"--descriptor_set_out={out}", os.path.join(ROOT, source)], check=True)
        with open(out, "rb") as file:
            files = descriptor_pb2.FileDescriptorSet.FromString(file.read())
        pool = descriptor_pool.DescriptorPool()
        for f in files.file:
            pool.Add(f)
        MESSAGES[name] = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{files.file[0].package}.{name}"))


def make_material(tools):
    folder = os.path.join(tools.scratch, "material")
    os.makedirs(folder)
    load_messages(tools)
    with open(os.path.join(folder, "m.onnx"), "wb") as file:
        file.write(cases_model.mlp().SerializeToString())
    compile_to = lambda plan, *flags: tools.make(["ampc", "m.onnx", "-o", plan, "--precision", "fp32", "-q", *flags], folder)
    compile_to("p.plan", "--loss", "mse", "--optimizer", "adam", "--lr", "0.01")
    compile_to("other.plan", "--loss", "mse", "--optimizer", "sgd", "--lr", "0.01")
    compile_to("c.plan", "--loss", "cross-entropy:target=target,axis=1", "--lr", "0.01")
    with open(os.path.join(folder, "embed.onnx"), "wb") as file:
        file.write(cases_model.embedding().SerializeToString())
    tools.make(["ampc", "embed.onnx", "-o", "embed.plan", "--precision", "fp32", "-q", "--loss", "mse"], folder)
    tools.make(["amprun", "p.plan", "--data", "x=random", "--data", "target=random", "--steps", "4", "--checkpoint-dir", "ck",
                "--checkpoint-every", "2", "--save-weights", "w.safetensors", "-q"], folder)


def crc32c_of_byte(i):
    for _ in range(8):
        i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
    return i


CRC32C = [crc32c_of_byte(i) for i in range(256)]  # cases run in several threads


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC32C[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


# ---- plans ---------------------------------------------------------------------------------------------------


def with_prelude(data, header, weights, **override):
    """A plan file around a header, its fixed part and checksums made to fit."""
    offset = (128 + len(header) + 63) // 64 * 64
    fields = {"format": 1, "header_bytes": len(header), "offset": offset, "weights_bytes": len(weights), **override}
    prelude = data[:8] + struct.pack("<II", fields["format"], 0) + data[16:80]
    prelude += struct.pack("<qqqI", fields["header_bytes"], fields["offset"], fields["weights_bytes"], crc32c(header)) + bytes(16)
    prelude += struct.pack("<I", crc32c(prelude))
    return prelude + header + bytes(offset - 128 - len(header)) + weights


def parts(data):
    size, offset, _ = struct.unpack_from("<qqq", data, 80)
    return data[128:128 + size], data[offset:]


def forged(edit):
    """Changes the header message and writes a plan whose checksums are right."""

    def change(data):
        header, weights = parts(data)
        message = MESSAGES["Header"].FromString(header)
        edit(message)
        return with_prelude(data, message.SerializeToString(), weights)

    return change


def plan(name, change, exit, pattern, argv=None):
    return Case("plan: " + name, argv or RUN, exit, pattern, {"p.plan": changed("p.plan", change)})


def damaged_plans():
    for i in range(24):
        yield plan(f"bit flipped in the first bytes, {i}", flip(i * 5), 1, r"p\.plan: error\[E064[123]\]")
    for i in range(16):
        yield plan(f"bit flipped in the header, {i}", lambda d, i=i: flip(128 + (len(parts(d)[0]) * i) // 16)(d), 1,
                   "E0643.*checksum .* of the header")
    for i in (1, 20):
        yield plan(f"bit flipped in the weights, {i}", flip(-i), 1, "the bytes of 'w' in the plan are damaged")
    for i in range(20):
        yield plan(f"cut at {i}/20", cut(i / 20), 1, r"p\.plan: error\[E064[13]\]")
    yield plan("with a byte more", lambda d: d + b"\0", 1, "E0643")
    yield plan("of a newer format", lambda d: with_prelude(d, *parts(d), format=2), 1, "format 2.*newer|newer.*format")
    yield plan("of format 0", lambda d: with_prelude(d, *parts(d), format=0), 1, "format 0")
    yield plan("sections swapped", lambda d: with_prelude(d, parts(d)[1], parts(d)[0]), 1, r"E064\d")
    for name, override in (("header length negative", {"header_bytes": -1}), ("header length huge", {"header_bytes": 1 << 62}),
                           ("weights before the header", {"offset": 64}), ("weights not aligned", {"offset": 129}),
                           ("weights huge", {"weights_bytes": (1 << 63) - 1}), ("weights beyond the end", {"offset": 1 << 40})):
        yield plan(name, lambda d, o=override: with_prelude(d, *parts(d), **o), 1, "E0643")
    yield plan("header of noise", lambda d: with_prelude(d, b"\xff" * 500, parts(d)[1]), 1, "E0644")
    yield plan("empty header", lambda d: with_prelude(d, b"", b""), 1, r"E0\d\d\d")
    for name, place, exit in (("a folder", directory, 6), ("a pipe", fifo, 6), ("a device", link_to("/dev/zero"), 6)):
        yield Case(f"plan: is {name}", RUN, exit, "p.plan", {"p.plan": place})
    yield Case("plan: is a model", RUN, 1, "not a plan", {"p.plan": material("m.onnx")})


def forged_plans():
    def first(message, kind):
        return next(p for p in message.programs if p.name != "eval") if kind == "program" else message.states[0]

    def program(name, edit, pattern=r"E064\d|E080\d"):
        return plan("forged " + name, forged(lambda m: edit(first(m, "program"))), 1, r"p\.plan.*error\[E\d+\].*|" + pattern)

    def put(target, **fields):
        for key, number in fields.items():
            setattr(target, key, number)

    def dims(target, *new):
        del target.dims[:]
        target.dims.extend(new)

    for name, edit in (
        ("tensor dim -1", lambda p: dims(p.tensors[0].desc, -1)), ("tensor dims overflow", lambda p: dims(p.tensors[0].desc, 1 << 40, 1 << 40)),
        ("tensor type 99", lambda p: put(p.tensors[0].desc, dtype=99)), ("tensor type 0", lambda p: put(p.tensors[0].desc, dtype=0)),
        ("tensor of strings", lambda p: put(p.tensors[0].desc, dtype=8)), ("tensor without a layout", lambda p: put(p.tensors[0].desc, layout=0)),
        ("tensor larger than its buffer", lambda p: dims(p.tensors[0].desc, 4, 4000)), ("tensor in buffer 9999", lambda p: put(p.tensors[0], buffer=9999)),
        ("tensor in buffer -1", lambda p: put(p.tensors[0], buffer=-1)), ("tensor at byte -4", lambda p: put(p.tensors[0], byte_offset=-4)),
        ("tensor at byte 2^62", lambda p: put(p.tensors[0], byte_offset=1 << 62)), ("tensor at byte 1", lambda p: put(p.tensors[0], byte_offset=1)),
        ("view of itself", lambda p: put(p.tensors[0], view_of=0)), ("view of 9999", lambda p: put(p.tensors[0], view_of=9999)),
        ("view of -7", lambda p: put(p.tensors[0], view_of=-7)),
        ("two tensors of one name", lambda p: put(p.tensors[0], name=p.tensors[1].name)),
        ("buffer of -1 bytes", lambda p: put(p.buffers[0], bytes=-1)), ("buffer of 2^62 bytes", lambda p: [put(b, bytes=1 << 62) for b in p.buffers]),
        ("buffers at 2^62", lambda p: [put(b, offset=1 << 62) for b in p.buffers]), ("buffers at -64", lambda p: [put(b, offset=-64) for b in p.buffers]),
        ("buffers all at 0", lambda p: [put(b, offset=0) for b in p.buffers]), ("buffers of an unknown space", lambda p: [put(b, space=9) for b in p.buffers]),
        ("buffers of state 9999", lambda p: [put(b, space=2, index=9999) for b in p.buffers]),
        ("buffers of feed -1", lambda p: [put(b, space=3, index=-1) for b in p.buffers]),
        ("buffers that never live", lambda p: [put(b, first=5, last=2) for b in p.buffers]),
        ("buffers that live for ever", lambda p: [put(b, first=-9, last=1 << 30) for b in p.buffers]),
        ("block of -64 bytes", lambda p: put(p, block_bytes=-64)), ("block of 0 bytes", lambda p: put(p, block_bytes=0)),
        ("unknown kernel", lambda p: put(p.calls[0], kernel=b"format_disk")), ("empty kernel", lambda p: put(p.calls[0], kernel=b"")),
        ("other kernel", lambda p: put(p.calls[0], kernel=b"conv_fwd")), ("input 9999", lambda p: p.calls[0].inputs.__setitem__(0, 9999)),
        ("input -2", lambda p: p.calls[0].inputs.__setitem__(0, -2)), ("input left out", lambda p: p.calls[0].inputs.__setitem__(0, -1)),
        ("output 9999", lambda p: p.calls[0].outputs.__setitem__(0, 9999)), ("output left out", lambda p: p.calls[0].outputs.__setitem__(0, -1)),
        ("no inputs", lambda p: p.calls[0].ClearField("inputs")), ("no outputs", lambda p: p.calls[0].ClearField("outputs")),
        ("an output that is an input", lambda p: p.calls[0].outputs.__setitem__(0, p.calls[0].inputs[0])),
        ("calls in reverse", lambda p: reverse(p.calls)), ("a call twice", lambda p: p.calls.insert(0, p.calls[-1]) if hasattr(p.calls, "insert") else None),
        ("parameters gone", lambda p: [c.ClearField("params") for c in p.calls]),
        ("result 9999", lambda p: put(p.outputs[0], tensor=9999)), ("result -1", lambda p: put(p.outputs[0], tensor=-1))):
        yield program(name, edit)

    def header(name, edit, pattern, exit=1, argv=None):
        return plan("forged " + name, forged(edit), exit, r"error\[E\d+\].*(" + pattern + ")", argv)

    def huge_states(m):
        for s in m.states[:4]:
            dims(s.desc, 1 << 60)
            s.initial.fill = 1

    yield header("states whose sizes wrap", huge_states, "bytes|large|state|memory")
    yield header("state of 1 EiB", lambda m: (dims(m.states[0].desc, 1 << 58), put(m.states[0].initial, fill=1)), "bytes|large|'w'|memory|P2|state")
    yield header("state without an initial value", lambda m: m.states[0].ClearField("initial"), "initial")
    yield header("state derived from 9999", lambda m: put(m.states[0].initial, derived_from=9999), "derived")
    yield header("state derived from itself", lambda m: put(m.states[0].initial, derived_from=0), "derived")
    yield header("state at weight 9999", lambda m: put(m.states[0].initial, weight=9999), "weight range 9999")
    yield header("state at weight -1", lambda m: put(m.states[0].initial, weight=-1), "weight range -1")
    yield header("state of an unknown role", lambda m: put(m.states[0], role=99), "99|role")
    yield header("two states of one name", lambda m: put(m.states[0], name=m.states[1].name), "named")
    yield header("weight beyond the section", lambda m: put(m.weights[0], offset=1 << 40), "outside")
    yield header("weight whose end wraps", lambda m: put(m.weights[0], offset=(1 << 63) - 1, length=100), "outside")
    yield header("weight of the wrong length", lambda m: put(m.weights[0], length=3), "bytes")
    yield header("weight with another checksum", lambda m: put(m.weights[0], crc=1), "damaged")
    yield header("constant without data", lambda m: m.constants.add(dtype=1, dims=[5]), "bytes")
    yield header("feed without axes", lambda m: dims(m.feeds[0].desc), "'x'|rank|axes|P2|tensor")
    yield header("feed of batch 0", lambda m: dims(m.feeds[0].desc, 0, 3), "'x'|P2|bytes")
    yield header("feeds of different batches", lambda m: dims(m.feeds[1].desc, 2, 2), "P2|bytes|batch|rows")
    yield header("feed of an unknown kind", lambda m: put(m.feeds[0], kind=77), "77|kind")
    yield header("feed of another program", lambda m: put(m.feeds[0], program=b"elsewhere"), "elsewhere|'x'")
    yield header("two feeds of one name", lambda m: put(m.feeds[0], name=m.feeds[1].name), "named")
    yield header("programs gone", lambda m: m.ClearField("programs"), "program")
    yield header("program of an unknown name", lambda m: [put(p, name=b"mine" + bytes([65 + i])) for i, p in enumerate(m.programs)], "program")
    yield header("programs of one name", lambda m: [put(p, name=b"step") for p in m.programs], "program")
    yield header("window of 0", lambda m: put(m, accumulate=0), "0 micro-batches")
    yield header("window of 2^62", lambda m: put(m, accumulate=1 << 62), "E0|micro")
    yield header("setting 9999", lambda m: put(m.settings[0], state=9999), "9999")
    yield header("setting of a whole tensor", lambda m: put(m.settings[0], state=0), "scalar")
    yield header("export of state 9999", lambda m: put(m.exports[0], state=9999), "9999")
    yield header("export of another shape", lambda m: dims(m.exports[0], 7), "export")
    yield header("export twice", lambda m: m.exports.append(m.exports[0]), "exported twice")
    yield header("export inside a field of the source model", lambda m: put(m.exports[0], rest=1), "source model")
    yield header("export before the source model", lambda m: put(m.exports[0], rest=1 << 62), "source model")
    yield header("export with cut notes", lambda m: put(m.exports[0], notes=b"\x62\x7f"), "source model")
    model_out = [a for a in RUN if a not in ("--save-weights", "out.safetensors")] + ["--export-model", "out.onnx"]
    for name, text in (("noise", b"\xff" * 100), ("cut", b"\x3a\xff\xff\x7f"), ("nothing", b"")):
        yield header("source model of " + name, lambda m, t=text: put(m, source_model=t), "model", argv=model_out)
    for name, text in (("noise", b"\x01\x02: {\0"), ("unknown key", b"modell: x"), ("aliases", b"lr: &a 1\nclip_norm: *a"),
                       ("a list", b"- 1"), ("nesting", b"data: " + b"[" * 100), ("lr text", b"lr: fast"), ("lr negative", b"lr: -1")):
        yield header("recipe of " + name, lambda m, t=text: put(m, recipe=t), "", exit=2 if name in ("unknown key", "lr text", "lr negative") else 1)


def reverse(calls):
    copies = [type(c).FromString(c.SerializeToString()) for c in calls]
    del calls[:]
    calls.extend(reversed(copies))


# ---- checkpoints ---------------------------------------------------------------------------------------------

RESUME = RUN[:-3] + ["--checkpoint-dir", "ck", "--resume", "--save-weights", "out.safetensors"]
RESUME[RESUME.index("--steps") + 1] = "6"
NEWEST, OLDER = "ck/step-000000000004.ckpt", "ck/step-000000000002.ckpt"


def remanifest(edit):
    def change(data):
        start, size = struct.unpack_from("<qq", data, len(data) - 32)
        manifest = MESSAGES["Manifest"].FromString(data[start:start + size])
        edit(manifest)
        text = manifest.SerializeToString()
        return data[:start] + text + struct.pack("<qqII", start, len(text), crc32c(text), 0) + data[-8:]

    return change


def checkpoint(name, changes, exit, pattern, argv=None):
    files = {"p.plan": material("p.plan"), "other.plan": material("other.plan"), "ck": material("ck"), **changes}
    return Case("checkpoint: " + name, argv or RESUME, exit, pattern, files)


def newest(change):
    return {NEWEST: changed(NEWEST, change)}


def both(change):
    return {NEWEST: changed(NEWEST, change), OLDER: changed(OLDER, change)}


def checkpoint_cases():
    for name, change in (("start", flip(2)), ("states", flip(70)), ("manifest", flip(-60)), ("footer", flip(-20)), ("end", flip(-2))):
        yield checkpoint(f"bit flipped in its {name}: the one before it", newest(change), 0, "is damaged: .*trying the one before it")
        yield checkpoint(f"bit flipped in the {name} of both", both(change), 1, r"ck: error\[E0652\].*no checkpoint here is intact")
    for i in (0, 1, 5, 9):
        yield checkpoint(f"both cut at {i}/10", both(lambda d, i=i: d[:len(d) * i // 10] if i else b""), 1, "E0652")
    yield checkpoint("newer format", newest(lambda d: d[:8] + b"\x09\0\0\0" + d[12:]), 1, "checkpoint format 9 is newer")
    for name, place in (("a folder", directory), ("a pipe", fifo), ("a link to a device", link_to("/dev/zero"))):
        yield checkpoint(f"{name} in its place", {"ck/step-000000000009.ckpt": place}, 0, "resumed after step 4")
    yield checkpoint("of another plan", {}, 1, "another plan", ["amprun", "other.plan"] + RESUME[2:])
    yield checkpoint("folder without --resume", {}, 2, "ck", [a for a in RESUME if a != "--resume"])

    def manifest(name, edit, pattern=r"E0652|E0654|E0972"):
        return checkpoint("forged " + name, both(remanifest(edit)), 1, r"error\[E\d+\].*|" + pattern)

    def each(**fields):
        def edit(m):
            for s in m.states:
                for key, number in fields.items():
                    setattr(s, key, number)
        return edit

    for name, edit in (
        ("offset negative", each(offset=-64)), ("offset huge", each(offset=1 << 62)), ("offset before the states", each(offset=0)),
        ("size negative", each(bytes=-1)), ("size huge", each(bytes=1 << 62)), ("type 99", each(dtype=99)), ("checksum", each(crc=1)),
        ("dims overflow", lambda m: [s.dims.extend([1 << 40, 1 << 40]) for s in m.states]),
        ("dims negative", lambda m: [s.dims.append(-1) for s in m.states]), ("states gone", lambda m: m.ClearField("states")),
        ("a state gone", lambda m: m.states.pop()), ("a state twice", lambda m: m.states.append(m.states[0])),
        ("a state too many", lambda m: m.states.add(name=b"more", dtype=1, dims=[0], bytes=0)),
        ("a state renamed", lambda m: setattr(m.states[0], "name", b"renamed")),
        ("position gone", lambda m: m.ClearField("position")), ("position of noise", lambda m: setattr(m, "position", b"\xff\0:")),
        ("position of aliases", lambda m: setattr(m, "position", b"step: &a 4\napplied: *a")),
        ("position nested", lambda m: setattr(m, "position", b"step: 4\napplied: 4\nsettings: " + b"{a: " * 5000)),
        ("position negative", lambda m: setattr(m, "position", b"step: -4\napplied: 4")),
        ("position beyond int64", lambda m: setattr(m, "position", b"step: 99999999999999999999\napplied: 4")),
        ("applied beyond the step", lambda m: setattr(m, "position", b"step: 4\napplied: 400")),
        ("applied negative", lambda m: setattr(m, "position", b"step: 4\napplied: -400"))):
        yield manifest(name, edit)
    yield checkpoint("forged step 2^63 - 1", both(remanifest(lambda m: setattr(m, "position", b"step: 9223372036854775807\napplied: 4"))), 1, "E0")


# ---- safetensors ---------------------------------------------------------------------------------------------

INIT = RUN[:-1] + ["--init-from", "i.safetensors", "-q"]


def safetensors(header, data=bytes(24), length=None):
    text = header if isinstance(header, bytes) else (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype="F32", shape=(3, 2), offsets=(0, 24)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def safetensors_cases():
    def s(name, data, exit=1, pattern=r"i\.safetensors: error\[E0781\]"):
        return Case("safetensors: " + name, INIT, exit, pattern, {"p.plan": material("p.plan"), "i.safetensors": data})

    good = safetensors({"w": entry()})
    for i in (0, 4, 8, 9, 40, len(good) - 25, len(good) - 1):
        yield s(f"cut at byte {i}", good[:i])
    for name, length in (("0", 0), ("1", 1), ("2^63", 1 << 63), ("2^64 - 1", (1 << 64) - 1), ("100 MB and one", 100_000_001), ("one too long", 57)):
        yield s("header length " + name, safetensors({"w": entry()}, bytes(8), length))
    for name, header in (
        ("list", "[]"), ("number", "7"), ("text after it", json.dumps({"w": entry()}) + "x"), ("comment", "{/* */}"),
        ("space before it", " " + json.dumps({"w": entry()})), ("byte order mark", "\ufeff{}"), ("not UTF-8", b'{"\xff\xfe":{}}'),
        ("half a surrogate", '{"\\ud800":' + json.dumps(entry()) + "}"), ("no closing brace", json.dumps({"w": entry()})[:-1]),
        ("nested 1,000,000 deep", '{"w":' + "[" * 1_000_000), ("objects nested", '{"a":' * 100_000), ("key twice", '{"w":%s,"w":%s}' % ((json.dumps(entry()),) * 2)),
        ("field twice", '{"w":{"dtype":"F32","dtype":"F32","shape":[3,2],"data_offsets":[0,24]}}'),
        ("no fields", {"w": {}}), ("field unknown", {"w": {**entry(), "x": 1}}), ("tensor a number", {"w": 5}),
        ("shape text", {"w": {**entry(), "shape": "3x2"}}), ("shape negative", {"w": entry(shape=(-3, -2))}), ("shape fraction", {"w": entry(shape=(3.0, 2))}),
        ("shape overflow", {"w": entry(shape=(1 << 40, 1 << 40))}), ("shape wraps to 6", {"w": entry(shape=(1 << 62, 4, 6))}),
        ("shape beyond 64 bits", '{"w":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,24]}}'),
        ("shape and size differ", {"w": entry(shape=(3, 3))}), ("type a number", {"w": entry(dtype=1)}),
        ("offsets reversed", {"w": entry(offsets=(24, 0))}), ("offsets beyond", {"w": entry(offsets=(0, 240), shape=(60,))}),
        ("offsets huge", {"w": entry(offsets=((1 << 64) - 24, (1 << 64) - 1))}), ("offsets negative", {"w": entry(offsets=(-24, 0))}),
        ("three offsets", {"w": entry(offsets=(0, 12, 24))}), ("overlap", {"a": entry(shape=(3,), offsets=(0, 12)), "b": entry(shape=(4,), offsets=(8, 24))}),
        ("hole", {"a": entry(shape=(2,), offsets=(0, 8)), "b": entry(shape=(3,), offsets=(12, 24))}),
        ("hole at the start", {"a": entry(shape=(5,), offsets=(4, 24))}), ("bytes left over", {"a": entry(shape=(2,), offsets=(0, 8))}),
        ("metadata a list", {"__metadata__": [], "w": entry()}), ("metadata of numbers", {"__metadata__": {"a": 1}, "w": entry()}),
        ("metadata nested", {"__metadata__": {"a": {"b": "c"}}, "w": entry()})):
        yield s("header: " + name, safetensors(header))
    yield s("header of 4 million numbers", safetensors('{"w":{"dtype":"F32","data_offsets":[0,24],"shape":[' + "1," * 4_000_000 + "6]}}"))
    yield s("type F8_E4M3", safetensors({"w": entry("F8_E4M3", (24,))}), 3, "F8_E4M3")
    yield s("type unknown", safetensors({"w": entry("\x1b[2J", (24,))}), 3, "dtype")
    yield s("another tensor", safetensors({"v": entry()}), 1, "'w'")
    yield s("another shape", safetensors({"w": entry(shape=(2, 3))}), 1, r"'w'.*\[3,2\].*\[2,3\]|'w'.*\[2,3\].*\[3,2\]")
    yield s("another type", safetensors({"w": entry("I32")}), 1, "'w'")
    for name, place in (("a folder", directory), ("a pipe", fifo), ("a device", link_to("/dev/zero"))):
        yield s("is " + name, place, 6, "i.safetensors")


def cases():
    yield from damaged_plans()
    yield from forged_plans()
    yield from checkpoint_cases()
    yield from safetensors_cases()
