# SPDX-License-Identifier: Apache-2.0
"""Data files: .npy, .npz, idx and gzip, tokens and text; and data that does not fit the feeds."""

import gzip
import io
import struct
import warnings
import zipfile
import zlib

import numpy as np

from case import Case, directory, fifo, link_to, material

ROWS = np.arange(24, dtype=np.float32).reshape(8, 3)
X = ["--data", "target=random", "--steps", "2", "--save-weights", "out.safetensors", "-q"]


def case(name, data, exit, pattern, file="x.npy", flag=None, argv=None):
    return Case("data: " + name, argv or ["amprun", "p.plan", "--data", flag or f"x={file}", *X], exit, pattern,
                {"p.plan": material("p.plan"), file: data})


def npy(array, **kw):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, **kw)
    return out.getvalue()


def header(text, body=b"", major=1, length=None):
    raw = text.encode() if isinstance(text, str) else text
    size = len(raw) if length is None else length
    return b"\x93NUMPY" + bytes([major, 0]) + struct.pack("<H" if major == 1 else "<I", size) + raw + body


def described(descr="'<f4'", order="False", shape="(8, 3)", body=None):
    return header(f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n", ROWS.tobytes() if body is None else body)


def npy_cases():
    good = npy(ROWS)
    for i in (0, 3, 6, 9, 10, 12):
        yield case(f"npy cut at byte {i}", good[:i], 1, r"x\.npy.*error\[E07\d\d\]|error\[E07\d\d\].*x\.npy")
    for i in (60, 127, 128, 200, len(good) - 1):
        yield case(f"npy cut at byte {i}", good[:i], 1, r"truncated|needs 96 bytes")
    yield case("npy with a byte more", good + b"\0", 1, "needs 96 bytes of data, the file has 97")
    yield case("npy of pickled objects", npy(np.array([{}, []], dtype=object), allow_pickle=True), 3, "pickled Python objects")
    yield case("npy of a pickle in a subdtype", described("'|O8'"), 3, "pickled")
    for name, descr, exit in (("structured", "[('a', '<f4'), ('b', '<i8')]", 3), ("strings", "'<U8'", 3), ("complex", "'<c8'", 3),
                              ("dates", "'<M8[s]'", 3), ("void", "'|V4'", 3), ("empty type", "''", 3), ("long double", "'<f16'", 3),
                              ("code for eval", "__import__('os').system('touch owned')", 1)):
        yield case("npy: " + name, described(descr), exit, r"x\.npy.*error\[E071\d\]")
    for name, shape in (("negative", "(-8, 3)"), ("no tuple", "24"), ("overflow", f"({1 << 40}, {1 << 40})"), ("beyond int64", f"({'9' * 40},)"),
                        ("wraps to 24", f"({1 << 63}, 2, 24)"), ("float", "(8.0, 3)"), ("open", "(8, 3"), ("text", "('a',)")):
        yield case("npy shape " + name, described(shape=shape), 1, r"x\.npy.*error\[E0711\]")
    yield case("npy of 40 axes", described(shape=str((1,) * 40)), 3, "axes")
    yield case("npy that promises 8 TiB", described(shape="(2199023255552,)"), 1, "needs 8796093022208 bytes")
    yield case("npy order 'maybe'", described(order="'maybe'"), 1, "E0711")
    yield case("npy key twice", header("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (8,3)}"), 1, "'descr'")
    yield case("npy key unknown", header("{'descr': '<f4', 'fortran_order': False, 'shape': (8,3), 'x': 1}"), 1, "'x'")
    yield case("npy no shape", header("{'descr': '<f4', 'fortran_order': False}"), 1, "E0711")
    yield case("npy nested 60,000 deep", header("{'descr': " + "(" * 60000), 1, "E0711")
    yield case("npy header of 4 GiB", header("{}", major=2, length=0xFFFFFFFF), 1, "4294967295")
    yield case("npy version 9", header("{}", major=9), 3, "version 9")
    yield case("npy Fortran order of the wrong shape", npy(np.asfortranarray(np.zeros((8, 5), np.float32))), 1, r"\[3\].*\[5\]|\[5\]")
    yield case("npy scalar", npy(np.float32(3)), 1, r"'x'")
    yield case("npy empty", npy(np.zeros((0, 3), np.float32)), 1, "E07")
    yield case("npy of one row", npy(ROWS[:1]), 1, "E0|1 sample|batch")
    yield case("npy is a folder", directory, 6, "x.npy.*directory")
    yield case("npy is a pipe", fifo, 6, "x.npy.*not a regular file")
    yield case("npy is a device", link_to("/dev/zero"), 6, "not a regular file")
    yield case("npy missing", lambda path, tools: None, 6, "x.npy.*No such file")
    yield case("unknown format", b"x,y\n1,2\n", 1, "unknown format")


def archive(members, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a name that comes twice
        for name, data in members:
            z.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


def patched(data, signature, offset, fmt, number):
    """Overwrites one field of every record that starts with `signature`."""
    out, at = bytearray(data), data.find(signature)
    while at >= 0:
        struct.pack_into(fmt, out, at + offset, number)
        at = data.find(signature, at + 4)
    return bytes(out)


CENTRAL, LOCAL, END = b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"


def npz_cases():
    good, deflated = archive([("x.npy", npy(ROWS))]), archive([("x.npy", npy(ROWS))], zipfile.ZIP_DEFLATED)

    def z(name, data, exit, pattern, flag="x=x.npz:member=x"):
        return case("npz " + name, data, exit, pattern, "x.npz", flag)

    for i in (4, 29, 40, len(good) // 2, len(good) - 60, len(good) - 23, len(good) - 1):
        yield z(f"cut at byte {i}", good[:i], 1, r"x\.npz.*error\[E073\d\]")
    for name, data, pattern in (
        ("checksum", patched(good, CENTRAL, 16, "<I", 1), "checksum"),
        ("sizes 4 GiB", patched(patched(good, CENTRAL, 20, "<I", 0xFFFFFFF0), CENTRAL, 24, "<I", 0xFFFFFFF0), "outside the file"),
        ("size unlike stored size", patched(good, CENTRAL, 24, "<I", 500), "E0731"),
        ("local header beyond the end", patched(good, CENTRAL, 42, "<I", 0x7FFFFFFF), "outside the file"),
        ("local header elsewhere", patched(good, CENTRAL, 42, "<I", 5), "header"),
        ("local name differs", good.replace(b"x.npy", b"y.npy", 1), "differ|checksum|x"),
        ("name beyond the directory", patched(good, CENTRAL, 28, "<H", 0xFFFF), "directory"),
        ("entries 65534", patched(patched(good, END, 8, "<H", 65534), END, 10, "<H", 65534), "entries"),
        ("directory beyond the end", patched(good, END, 16, "<I", 0xFFFFFFF0), "directory"),
        ("directory size beyond", patched(good, END, 12, "<I", 0xFFFFFF00), "directory"),
        ("comment of a false length", good[:-2] + b"\xff\xff", "end record"),
        ("two members of one name", archive([("x.npy", npy(ROWS)), ("x.npy", npy(ROWS))]), "twice"),
        ("deflated data broken", patched(deflated, LOCAL, 40, "<I", 0xFFFFFFFF), "compressed|checksum"),
        ("deflated size too large", patched(deflated, CENTRAL, 24, "<I", 300), "E07"),
        ("deflated size too small", patched(deflated, CENTRAL, 24, "<I", 100), "E07"),
        ("deflated claims 4 GiB", patched(deflated, CENTRAL, 24, "<I", 0xFFFFFFF0), "cannot have")):
        yield z(name, data, 1, pattern)
    yield z("encrypted", patched(patched(good, CENTRAL, 8, "<H", 1), LOCAL, 6, "<H", 1), 3, "encrypted")
    yield z("compression method 99", patched(good, CENTRAL, 10, "<H", 99), 3, "method 99")
    yield z("bzip2", archive([("x.npy", npy(ROWS))], zipfile.ZIP_BZIP2), 3, "method 12")
    yield z("without members", archive([]), 1, "E07")
    yield z("without that member", archive([("z.npy", npy(ROWS))]), 1, "no such array.*'z'")
    yield z("member of pickled objects", archive([("x.npy", npy(np.array([{}], dtype=object), allow_pickle=True))]), 3, "pickled")
    yield z("member that is no npy", archive([("x.npy", b"hello world" * 9)]), 1, "not a .npy")
    for name in ("../../x", "/etc/x", "C:\\x", "\x1b[2Jx"):
        yield z(f"member named {name!r}", archive([(name + ".npy", npy(ROWS)), ("b.npy", npy(ROWS))]), 1, "E0788")
    yield z("zip64 record missing", good[:-22] + b"PK\x06\x07" + struct.pack("<IQI", 0, 1 << 40, 1) + good[-22:], 1, "zip64")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as big:
        with big.open("x.npy", "w", force_zip64=True) as member:
            member.write(npy(ROWS))
    zip64 = patched(patched(out.getvalue(), CENTRAL, 20, "<I", 0xFFFFFFFF), CENTRAL, 24, "<I", 0xFFFFFFFF)
    yield z("zip64 sizes missing", zip64, 1, "E0731")
    # 200 MB of zeros in 200 KB: real, and not what the feed takes.
    bomb = zlib.compressobj(9, zlib.DEFLATED, -15)
    prefix = described(shape="(50000000,)", body=b"")
    packed = bomb.compress(prefix + bytes(200_000_000)) + bomb.flush()
    yield z("bomb", raw_member(packed, len(prefix) + 200_000_000, 0), 1, "checksum|'x'")
    yield z("bomb that lies", raw_member(packed, 400_000_000, 0), 1, "cannot have|promises")
    yield z("bomb beyond the machine", raw_member(packed[:90000] * 50, 90000 * 50 * 1000, 0), 1, "E07")


def raw_member(packed, size, crc):
    name = b"x.npy"
    common = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, crc, len(packed), size & 0xFFFFFFFF, len(name), 0)
    local = LOCAL + common + name + packed
    central = CENTRAL + struct.pack("<H", 20) + common + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    return local + central + END + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)


def idx(dims, code=0x0D, body=None, zeros=b"\0\0", rank=None):
    data = ROWS.astype(">f4").tobytes() if body is None else body
    return zeros + bytes([code, len(dims) if rank is None else rank]) + b"".join(struct.pack(">I", d) for d in dims) + data


def idx_cases():
    def i(name, data, pattern, file="x.idx"):
        return case("idx " + name, data, 1, pattern, file)

    yield i("wrong magic", idx((8, 3), zeros=b"\0\1"), "unknown format")
    yield i("type 0", idx((8, 3), code=0), "unknown format")
    yield i("no axes", idx(()), "unknown format")
    yield i("255 axes", idx((1,) * 255), "axes")
    yield i("fewer dims than it says", idx((8,), body=b"", rank=9), "truncated")
    yield i("product overflows", idx((0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF)), "addressed|needs")
    yield i("promises 16 GiB", idx((0xFFFFFFFF,)), "needs 17179869180 bytes")
    yield i("cut", idx((8, 3))[:-1], "needs 96 bytes of data, the file has 95")
    yield i("with a byte more", idx((8, 3)) + b"\0", "the file has 97")
    packed = gzip.compress(idx((8, 3)), mtime=0)
    for n in (2, 9, 12, len(packed) // 2, len(packed) - 4):
        yield i(f"gz cut at byte {n}", packed[:n], "E07", "x.gz")
    yield i("gz checksum", packed[:-8] + b"\0\0\0\0" + packed[-4:], "compressed", "x.gz")
    yield i("gz length", packed[:-4] + b"\1\0\0\0", "compressed", "x.gz")
    yield i("gz with bytes after it", packed + b"garbage", "E072", "x.gz")
    yield i("gz with another member after it", packed + gzip.compress(b"more", mtime=0), "more than", "x.gz")
    yield i("gz in gz", gzip.compress(packed, mtime=0), "E07", "x.gz")
    yield i("gz of text", gzip.compress(b"hello\n" * 99, mtime=0), "not an idx", "x.gz")
    yield i("gz that promises 16 GiB", gzip.compress(idx((0xFFFFFFFF,), body=b""), mtime=0), "cannot come from", "x.gz")
    yield i("gz bomb behind a small header", gzip.compress(idx((8, 3), body=bytes(100_000_000)), mtime=0), "more than", "x.gz")


def token_cases():
    """The plan's feed x takes windows of three tokens, its target windows of two."""

    def t(name, data, exit, pattern, flag, file="x.bin", more=None, eval_flag=None):
        argv = ["amprun", "p.plan", "--data", "x=" + flag, *X[:2], "--no-shuffle", "--steps", "9", *X[4:]]
        if eval_flag:
            argv += ["--eval-data", "x=" + eval_flag, "--eval-data", "target=const"]
        return Case("tokens: " + name, argv, exit, pattern, {"p.plan": material("p.plan"), file: data, **(more or {})})

    u16 = np.arange(60, dtype="<u2").tobytes()
    yield t("empty", b"", 1, r"x\.bin.*no tokens", "x.bin")
    yield t("odd length", u16 + b"\0", 1, r"x\.bin.*121 bytes.*no whole number.*dtype=", "x.bin")
    yield t("three bytes of i64", b"abc", 1, "no whole number", "x.bin:dtype=i64")
    yield t("header as long as the file", u16, 1, "no tokens", "x.bin:header=120")
    yield t("header longer than the file", u16, 1, "header=121, but the file has 120", "x.bin:header=121")
    yield t("header of 8 EiB", u16, 1, "header=9223372036854775807", "x.bin:header=9223372036854775807")
    yield t("header beyond int64", u16, 2, "header", "x.bin:header=9223372036854775808")
    yield t("header negative", u16, 2, "header", "x.bin:header=-1")
    yield t("shorter than a window", u16[:4], 1, "feed 'x': 2 tokens are too few: one window takes 3", "x.bin")
    yield t("shift to the end", u16, 1, "too few.*behind the first 58", "x.bin:shift=58")
    yield t("shift of 8 EiB", u16, 1, "too few", "x.bin:shift=9223372036854775807")
    yield t("shift negative", u16, 2, "shift", "x.bin:shift=-1")
    yield t("stride 0", u16, 2, "stride", "x.bin:stride=0")
    yield t("stride of 8 EiB", u16, 1, "samples are too few", "x.bin:stride=9223372036854775807")
    yield t("unknown type", u16, 2, "dtype.*f32", "x.bin:dtype=f32")
    yield t("folder", directory, 6, "x.bin.*directory", "x.bin")
    yield t("pipe", fifo, 6, "not a regular file", "x.bin")
    yield t("missing", lambda path, tools: None, 6, "x.bin.*No such file", "x.bin")
    yield Case("tokens: two streams of unlike length", ["amprun", "p.plan", "--data", "x=x.bin", "--data", "target=t.bin:stride=3", *X[2:]], 1,
               "feed 'x' has 60 tokens with a window every 3, feed 'target' 30",
               {"p.plan": material("p.plan"), "x.bin": u16, "t.bin": u16[:60]})
    for key in ("member=x", "permute=[0]", "axis=1", "layout=steps", "vocab=x.bin"):
        yield t("key " + key, u16, 2, r"error\[E0605\].*" + key.split("=")[0], "x.bin:" + key)
    yield t("stride of an npy", npy(ROWS), 2, r"'x\.npy': key 'stride' is for tokens", "x.npy:stride=3", "x.npy")
    label = np.array([0, 1, 1, 2], "<u2").tobytes()
    yield Case("tokens: label beyond the classes", ["amprun", "c.plan", "--data", "x=random", "--data", "target=t.bin", "--epochs", "1",
                                                    "--no-shuffle", *X[4:]], 1, r"t\.bin.*'target': sample 3 holds 2, the feed takes 0 to 1",
               {"c.plan": material("c.plan"), "t.bin": label})
    yield Case("tokens: negative label", ["amprun", "c.plan", "--data", "x=random", "--data", "target=t.bin:dtype=i64", "--epochs", "1",
                                          "--no-shuffle", *X[4:]], 1, r"'target': sample 1 holds -1",
               {"c.plan": material("c.plan"), "t.bin": np.array([0, -1, 0, 1], "<i8").tobytes()})

    def text(name, data, exit, pattern, flag="x.txt:tokens=char", **more):
        return t("text " + name, data, exit, pattern, flag, "x.txt", **more)

    yield text("empty", b"", 1, r"x\.txt.*the text is empty")
    yield text("of one character", b"a", 1, "1 tokens are too few")
    yield text("without tokens=", b"hello world\n" * 9, 1, "unknown format.*tokens=char", "x.txt")
    yield text("with tokens=bpe", b"hello world\n" * 9, 2, "tokens.*bpe", "x.txt:tokens=bpe")
    yield text("with dtype=", b"hello world\n" * 9, 2, r"error\[E0605\].*'dtype'", "x.txt:tokens=char,dtype=u8")
    for label, data, at in (("in Latin-1", "h\u00e9llo w\u00f6rld".encode("latin-1"), 1), ("cut within a character", "abcdefg\u00e9".encode()[:-1], 7),
                            ("of continuation bytes", b"\x80" * 9, 0), ("overlong", b"ab\xc0\xafcdef", 2), ("overlong by three", b"ab\xe0\x80\xafcdef", 2),
                            ("with a surrogate", b"abc\xed\xa0\x80def", 3), ("beyond Unicode", b"abc\xf4\x90\x80\x80def", 3),
                            ("with 0xff", b"abcdef\xff", 6), ("cut after four", b"abcdef\xf0\x9f\x98", 6)):
        yield text(label, data, 1, rf"x\.txt.*not UTF-8 text: no character begins with byte {at} ")
    yield text("of NUL bytes and an escape", b"\0\x1b[2J" * 20 + b"\xff", 1, "byte 100 ")
    abc = b"abcabcabcabcabc"
    yield text("with a new character in evaluation", abc, 1, r"e\.txt.*the character 'd' \(U\+0064\) at byte 3 is not among the 3 of 'x\.txt'",
               more={"e.txt": b"abcdabc"}, eval_flag="e.txt:tokens=char")
    yield text("with an unseen control character in evaluation", abc, 1, r"the character U\+001B at byte 0 is not among",
               more={"e.txt": b"\x1b[2Jabc"}, eval_flag="e.txt:tokens=char")
    yield text("whose vocabulary is missing", abc, 6, "v.txt.*No such file", "x.txt:tokens=char,vocab=v.txt")
    yield text("whose vocabulary is no text", abc, 1, r"v\.txt.*not UTF-8", "x.txt:tokens=char,vocab=v.txt", more={"v.txt": b"\xff\xfe"})
    yield text("whose vocabulary lacks a character", abc, 1, "'c' .*is not among the 2 of 'v.txt'", "x.txt:tokens=char,vocab=v.txt", more={"v.txt": b"ab"})
    yield Case("tokens: text of more characters than classes", ["amprun", "c.plan", "--data", "x=random", "--data", "target=t.txt:tokens=char",
                                                                "--epochs", "1", *X[4:]], 1,
               r"t\.txt.*the 3 different characters of 't\.txt' get the ids 0 to 2, feed 'target' takes 0 to 1",
               {"c.plan": material("c.plan"), "t.txt": abc})
    yield Case("tokens: more than the embedding has", ["amprun", "embed.plan", "--data", "x=x.txt:tokens=char", "--data", "target=const", "--epochs", "1",
                                                       *X[4:]], 1, r"x\.txt.*the 95 different characters of 'x\.txt' get the ids 0 to 94, feed 'x' takes 0 to 3",
               {"embed.plan": material("embed.plan"), "x.txt": bytes(range(32, 127)) * 4})


def feed_cases():
    def f(name, exit, pattern, *argv, arrays=None):
        files = {"p.plan": material("p.plan"), "c.plan": material("c.plan")}
        files.update({n: npy(a) for n, a in (arrays or {"x.npy": ROWS}).items()})
        return Case("feed: " + name, ["amprun", *argv, "--save-weights", "out.safetensors", "-q"], exit, pattern, files)

    two = ["p.plan", "--data", "target=random"]
    yield f("missing", 2, "feed 'x'.*has no data", *two, "--steps", "2")
    yield f("unknown", 2, "'z'", "p.plan", "--data", "z=x.npy", "--steps", "2")
    yield f("twice", 2, "'x'", *two, "--data", "x=x.npy", "--data", "x=random", "--steps", "2")
    yield f("shape", 1, r"\[3\].*\[4\]|\[4\].*\[3\]", *two, "--data", "x=x.npy", "--steps", "2", arrays={"x.npy": np.zeros((8, 4), np.float32)})
    yield f("fewer samples than the other", 1, "8.*6|6.*8", "p.plan", "--data", "x=x.npy", "--data", "target=t.npy", "--steps", "2",
            arrays={"x.npy": ROWS, "t.npy": np.zeros((6, 2), np.float32)})
    yield f("floats for labels", 1, "floats are not cut to integers", "c.plan", "--data", "x=x.npy", "--data", "target=t.npy", "--steps", "2",
            arrays={"x.npy": ROWS, "t.npy": np.zeros(8, np.float32)})
    for label in (2, -1, 1 << 40):
        yield f(f"label {label}", 1, f"'target'.*{label}", "c.plan", "--data", "x=x.npy", "--data", "target=t.npy", "--epochs", "1", "--no-shuffle",
                arrays={"x.npy": ROWS, "t.npy": np.full(8, label, np.int64)})
    yield f("label beyond int64", 1, "'target'.*18446744073709551615", "c.plan", "--data", "x=x.npy", "--data", "target=t.npy", "--epochs", "1",
            arrays={"x.npy": ROWS, "t.npy": np.full(8, 2**64 - 1, np.uint64)})
    yield f("not a number", 4, "non-finite|skips|nan", *two, "--data", "x=x.npy", "--steps", "200", arrays={"x.npy": np.full((8, 3), np.nan, np.float32)})
    for name, key, exit in (("permute of too few axes", "permute=[0]", 2), ("permute twice one axis", "permute=[0,0]", 2),
                            ("permute negative", "permute=[-1,0]", 2), ("permute huge", "permute=[0,9223372036854775807]", 2),
                            ("axis 7", "axis=7", 2), ("axis -1", "axis=-1", 2), ("std 0", "std=0", 2), ("std inf", "std=inf", 2),
                            ("scale nan", "scale=nan", 2), ("1000 means", "mean=[" + ",".join("1" * 1000) + "]", 2),
                            ("member of an npy", "member=x", 2), ("unknown key", "skale=2", 2), ("layout sideways", "layout=sideways", 2)):
        yield f(name, exit, r"error\[E\d+\]", *two, "--data", "x=x.npy:" + key, "--steps", "2")
    for text in ("5:3", "0:99", "8:", "a:b", "-1:4", "0:1e300", "::", "90%:10%", "0:0.5", "nan:inf"):
        yield f("range " + text, 2, r"error\[E076\d\]|error\[E\d+\].*range",
                *two, "--data", "x=x.npy", "--range", text, "--epochs", "1")


def cases():
    yield from npy_cases()
    yield from npz_cases()
    yield from idx_cases()
    yield from token_cases()
    yield from feed_cases()
