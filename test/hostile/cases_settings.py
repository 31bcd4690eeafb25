# SPDX-License-Identifier: Apache-2.0
"""Recipes, policies and flags."""

from case import Case, directory, fifo, link_to, material

BASE = ["ampc", "m.onnx", "-o", "out.plan", "--loss", "mse", "--precision", "fp16", "-q"]
MEGABYTE = 1 << 20


def yaml_texts():
    """(name, text) that no settings file may be: the same for recipes and policies."""
    laughs = "a: &a [x, x]\n" + "".join(f"{c}: &{c} [*{p}, *{p}]\n" for p, c in zip("abcdefghi", "bcdefghij"))
    yield "billion laughs", laughs
    yield "anchor", "lr: &x 1\n"
    yield "alias", "lr: *x\n"
    yield "merge key", "<<: *x\n"
    yield "tag", "lr: !!python/object/apply:os.system ['touch owned']\n"
    yield "tabs", "loss:\n\tkind: mse\n"
    yield "key twice", "lr: 1\nlr: 2\n"
    yield "two documents", "lr: 1\n---\nlr: 2\n"
    yield "a list", "- 1\n- 2\n"
    yield "a scalar", "hello\n"
    yield "list as a key", "[1, 2]: 3\n"
    yield "empty key", ": 3\n"
    yield "quote open", 'lr: ["1\n'
    yield "bracket open", "lr: [1\n"
    yield "wrong indent", "a: 1\n  b: 2\n c: 3\n"
    yield "binary", "\0\1\2\xff\n"
    yield "nested 20 deep", "a: " + "[" * 20 + "]" * 20 + "\n"
    yield "nested 100,000 deep, lists", "a: " + "[" * 100_000
    yield "nested 100,000 deep, maps", "a: " + "{a: " * 100_000
    yield "nested 2,000 deep, blocks", "".join(" " * i + "a:\n" for i in range(2000))
    yield "4 MiB of dashes", "- " * (2 * MEGABYTE - 9)
    yield "4 MiB of question marks", "? " * (2 * MEGABYTE - 9)
    yield "4 MiB of one word", "a" * (4 * MEGABYTE - 9)
    yield "4 MiB of an open quote", '"' + "a " * (2 * MEGABYTE - 9)
    yield "4 MiB of comments", "#\n" * (2 * MEGABYTE - 9) + "x"
    yield "4 MiB of keys", "".join(f"k{i}: 1\n" for i in range(380_000))[: 4 * MEGABYTE - 9]
    yield "4 MiB of flow keys", "{" + "".join(f"k{i}: 1," for i in range(380_000))[: 4 * MEGABYTE - 9]
    yield "5 MiB", "a: " + "x" * (5 * MEGABYTE)


def recipe(name, text, exit, pattern):
    return Case("recipe: " + name, ["ampc", "--recipe", "r.yaml", "m.onnx", "-o", "out.plan", "-q"], exit, pattern,
                {"m.onnx": material("m.onnx"), "r.yaml": text.encode("latin-1") if isinstance(text, str) else text})


def policy(name, text, exit, pattern):
    return Case("policy: " + name, [*BASE, "--policy", "p.yaml"], exit, pattern,
                {"m.onnx": material("m.onnx"), "p.yaml": text.encode("latin-1") if isinstance(text, str) else text})


def recipe_cases():
    for name, text in yaml_texts():
        yield recipe(name, text, 6 if name == "5 MiB" else 1, r"r\.yaml.*")
    for name, text, pattern in (
        ("unknown key", "lerning_rate: 1", "unknown key 'lerning_rate'"), ("lr of text", "lr: fast", "lr"), ("lr of a list", "lr: [1, 2]", "lr"),
        ("lr of a map", "lr: {a: 1}", "lr"), ("lr of nothing", "lr:", "lr"), ("lr nan", "lr: .nan", "lr"), ("lr inf", "lr: inf", "lr"),
        ("lr negative", "lr: -0.1", "lr"), ("lr 1e999", "lr: 1e999", "lr"), ("lr 1/0", "lr: 1/0", "lr"), ("accumulate 0", "accumulate: 0", "accumulate"),
        ("accumulate negative", "accumulate: -4", "accumulate"), ("accumulate fraction", "accumulate: 1.5", "accumulate"),
        ("accumulate 10^18", "accumulate: 1000000000000000001", "accumulate"), ("accumulate beyond int64", "accumulate: 99999999999999999999", "accumulate"),
        ("dim negative", "dim: {batch: -4}", "dim"), ("dim 0", "dim: {batch: 0}", "dim"), ("dim 2^62", "dim: {batch: 4611686018427387904}", "dim|batch"),
        ("dim unknown", "dim: {nothing: 4}", "nothing"), ("precision fp8", "precision: fp8", "precision.*fp8|fp8"),
        ("precision a list", "precision: [fp16]", "precision"), ("loss unknown", "loss: {kind: hinge}", "hinge"), ("loss without a kind", "loss: {target: y}", "loss"),
        ("loss key unknown", "loss: {kind: mse, tarjet: y}", "tarjet"), ("loss input unknown", "loss: {kind: mse, input: nowhere}", "nowhere"),
        ("optimizer unknown", "optimizer: adamx", "adamx"), ("betas of one", "optimizer: {kind: adam, betas: [0.9]}\nloss: mse", "betas"),
        ("betas of text", "optimizer: {kind: adam, betas: [a, b]}\nloss: mse", "betas"), ("beta 2", "optimizer: {kind: adam, betas: [0.9, 2]}\nloss: mse", "beta"),
        ("momentum nan", "optimizer: {kind: sgd, momentum: .nan}\nloss: mse", "momentum"), ("clip_norm negative", "clip_norm: -1", "clip"),
        ("epochs negative", "epochs: -1", "epochs"), ("epochs text", "epochs: many", "epochs"), 
        ("recipe in a recipe", "recipe: r.yaml", "recipe"), ("output in a recipe", "output: /tmp/x", "output"),
        ("loss_scale 0", "loss_scale: 0", "loss.scale"), ("loss_scale negative", "loss_scale: -8", "loss.scale"),
        ("trainable matches nothing", "trainable: [zzz]\nloss: mse", "zzz"), ("freeze all", "freeze: ['*']\nloss: mse", ""),
        ("glob of stars", "trainable: ['" + "*a" * 2000 + "b']\nloss: mse", "trainable|match")):
        yield recipe(name, text, 1 if name == "freeze all" else 2, r"error\[E\d+\].*" + pattern)
    for name, place in (("a folder", directory), ("a device", link_to("/dev/zero"))):
        yield Case("recipe: is " + name, ["ampc", "--recipe", "r.yaml", "m.onnx", "-o", "out.plan"], 6, "r.yaml",
                   {"m.onnx": material("m.onnx"), "r.yaml": place})
    yield Case("recipe: missing", ["ampc", "--recipe", "r.yaml", "m.onnx", "-o", "out.plan"], 6, "r.yaml", {"m.onnx": material("m.onnx")})


def policy_cases():
    for name, text in yaml_texts():
        yield policy(name, text, 6 if name == "5 MiB" else 1, r"p\.yaml.*")
    for name, text, pattern in (
        ("unknown key", "bass: O1", "bass"), ("base unknown", "base: torch-tpu", "torch-tpu"), ("base a list", "base: [fp32]", "base"),
        ("rules a map", "rules: {op: MatMul}", "rules"), ("rule of text", "rules: [MatMul]", "rule"), ("rule without a class", "rules: [{op: MatMul}]", "class"),
        ("rule of an unknown class", "rules: [{op: MatMul, class: fp8}]", "fp8"), ("rule without a match", "rules: [{class: fp32}]", "rule"),
        ("rule of an unknown op", "rules: [{op: MatMull, class: fp32}]", "MatMull"), ("rule of an unknown node", "rules: [{node: /nowhere, class: fp32}]", "nowhere"),
        ("rule key unknown", "rules: [{opp: MatMul, class: fp32}]", "opp"), ("between of one", "rules: [{between: [x], class: fp32}]", "between"),
        ("between of nothing", "rules: [{between: [a1, b2], class: fp32}]", "a1|b2"), ("op of a list", "rules: [{op: [MatMul], class: fp32}]", "op"),
        ("class never", "rules: [{op: MatMul, class: never}]", "never|MatMul"), ("limit of text", "limits: {init_abs_max: big}", "init_abs_max"),
        ("limit negative", "limits: {init_abs_max: -1}", "init_abs_max"), ("limit nan", "limits: {init_abs_max: .nan}", "init_abs_max"),
        ("limit unknown", "limits: {weight_max: 1}", "weight_max"), ("limits a list", "limits: [1]", "limits")):
        exit = {"class never": 3, "rule of an unknown op": 2, "rule of an unknown node": 2, "between of nothing": 2}.get(name, 1)
        yield policy(name, text, exit, r"error\[E\d+\].*" + pattern)
    yield policy("limit that is not built", "limits: {value_abs_max: 512}", 3, "not built")
    for name, place in (("a folder", directory), ("missing", lambda path, tools: None), ("a device", link_to("/dev/zero"))):
        yield policy("is " + name, place, 6, "p.yaml")


def flag_cases():
    def flag(name, *argv, exit=2, pattern=r"error\[E\d+\]"):
        return Case("flags: " + name, list(argv), exit, pattern, {"m.onnx": material("m.onnx"), "p.plan": material("p.plan")})

    ampc = ["ampc", "m.onnx", "-o", "out.plan", "--loss", "mse", "-q"]
    run = ["amprun", "p.plan", "--data", "x=random", "--data", "target=random", "--steps", "2", "--save-weights", "out.safetensors", "-q"]
    for argv in (["--lr", "nan"], ["--lr", "inf"], ["--lr", "-1"], ["--lr", ""], ["--lr", "1e400"], ["--lr", "0x10"], ["--lr"], ["--lr", "1", "--lr", "2"],
                 ["--accumulate", "0"], ["--accumulate", "-1"], ["--accumulate", "9" * 40], ["--dim", "batch"], ["--dim", "=4"], ["--dim", "batch=four"],
                 ["--optimizer", "sgd:momentum=2,momentum=3"], ["--optimizer", "sgd:momentum=[0.9]"], ["--optimizer", "adam:betas=[" * 50],
                 ["--optimizer", "adam:betas=[0.9,nan]"], ["--optimizer", "sgd:momentum='0.9"], ["--optimizer", "sgd:"], ["--optimizer", ":momentum=1"],
                 ["--loss-scale", "dynamic:init_scale=0"], ["--loss-scale", "dynamic:growth_factor=0.5"], ["--loss-scale", "dynamic:backoff_factor=2"],
                 ["--loss-scale", "dynamic:growth_interval=0"], ["--loss-scale", "dynamic:min_scale=9,max_scale=1"], ["--clip-norm", "nan"],
                 ["--precision", "FP16"], ["--policy", "O2"], ["--lr-schedule", "cosine:warmup=-1"], ["--lr-schedule", "step:step_size=0"],
                 ["--frobnicate"], ["--lr-shedule", "linear"], ["extra.onnx"], ["--recipe", ""], ["--emit", "everything"], ["--trainable", ""],
                 ["--trainable", "[z-a"], ["--metric", "accuracy:k=0"], ["--metric", "accuracy:k=-1"], ["--wgrad", "int8"]):
        yield flag("ampc " + " ".join(argv)[:60], *ampc, *argv, exit=2)
    for argv in (["--steps", "-1"], ["--steps", "1e30"], ["--steps", "1.5"], ["--threads", "0"], ["--threads", "-3"], ["--threads", "99999999999"],
                 ["--seed", "-1"], ["--seed", "1e40"], ["--device", "tpu"], ["--device", "cpu:9"], ["--checkpoint-every", "0"], ["--checkpoint-every", "5"],
                 ["--keep", "0"], ["--log-every", "0"], ["--eval-every", "-2"], ["--fetch", "nowhere", "--fetch-out", "out.npz"], ["--fetch-out", "out.npz"],
                 ["--precision", "fp16"], ["--lr", "nan"], ["--data", "x=const:value=nan"], ["--data", "x=const:value=[1]"], ["--data", "random:high=-1"],
                 ["--data", "x="], ["--data", "="], ["--data", ""], ["--export-model", ""]):
        yield flag("amprun " + " ".join(argv), *run, *argv)
    yield flag("ampc without a model", "ampc", "-o", "out.plan")
    yield flag("amprun without a plan", "amprun")
    yield flag("ampc 1 MB of flag", *ampc, "--loss", "m" * 100_000)
    yield flag("ampc writes over its model", "ampc", "m.onnx", "-o", "m.onnx", "--loss", "mse", "-q", exit=2)
    for name, target, exit in (("a folder", ".", 6), ("a missing folder", "none/out.plan", 6), ("/dev/full", "/dev/full", 6)):
        yield flag("ampc writes to " + name, "ampc", "m.onnx", "-o", target, "--loss", "mse", "-q", exit=exit)


def cases():
    yield from recipe_cases()
    yield from policy_cases()
    yield from flag_cases()
