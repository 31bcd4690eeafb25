# SPDX-License-Identifier: Apache-2.0
"""Models that bring their training along: training_info, and ONNX Runtime's training artifacts.

    training_graphs.py BIN [check…]
"""
import json
import math

import numpy as np
import onnx
from onnx import helper, numpy_helper

from harness import MODELS, Failed, expect, log_lines, losses, run_checks

PREVIEW, MICROSOFT = "ai.onnx.preview.training", "com.microsoft"
INFO, ARTIFACTS = MODELS / "training_info", MODELS / "ort_artifacts"
STEPS = 30
# A loss of about 2.3 in fp32 has steps of 2.4e-7; a run's order of sums differs from the recording's.
FP32 = 8 * 2.0**-22


# ---- training_info ---------------------------------------------------------------------------------------------------

def info_state(model):
    """{name: array in double} of all initializers, as the file's float32 values."""
    tensors = [*model.graph.initializer, *model.training_info[0].algorithm.initializer]
    return {t.name: numpy_helper.to_array(t).astype(np.float64) for t in tensors}


def optimizer_node(model):
    return next(n for n in model.training_info[0].algorithm.node if n.domain == PREVIEW and n.op_type != "Gradient")


def numbers(node):
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def gradients(s, x, label):
    pre = x @ s["W1"] + s["b1"]
    hid = np.maximum(pre, 0)
    y = hid @ s["W2"] + s["b2"]
    y = y - y.max(1, keepdims=True)
    logp = y - np.log(np.exp(y).sum(1, keepdims=True))
    rows = np.arange(len(label))
    dy = np.exp(logp)
    dy[rows, label] -= 1
    dy /= len(label)
    dpre = (dy @ s["W2"].T) * (pre > 0)
    return -logp[rows, label].mean(), {"W1": x.T @ dpre, "b1": dpre.sum(0), "W2": hid.T @ dy, "b2": dy.sum(0)}


def update(node, s, g, n, t, r):
    """ONNX's text of the three operators, for parameter n."""
    a = numbers(node)
    g = a.get("norm_coefficient", 0) * s[n] + g
    if node.op_type == "Momentum":
        v = a["alpha"] * s[f"{n}_V"] + (a["beta"] if t > 0 else 1) * g
        s[f"{n}_V"] = v
        s[n] = s[n] - r * (g + a["alpha"] * v if a["mode"] == b"nesterov" else v)
    elif node.op_type == "Adam":
        v = a["alpha"] * s[f"{n}_V"] + (1 - a["alpha"]) * g
        h = a["beta"] * s[f"{n}_H"] + (1 - a["beta"]) * g * g
        rate = r * np.sqrt(1 - a["beta"] ** t) / (1 - a["alpha"] ** t) if t > 0 else r
        s[f"{n}_V"], s[f"{n}_H"] = v, h
        s[n] = (1 - a.get("norm_coefficient_post", 0)) * (s[n] - rate * v / (np.sqrt(h) + a["epsilon"]))
    else:
        h = s[f"{n}_V"] + g * g
        s[f"{n}_V"] = h
        s[n] = s[n] - r / (1 + t * a["decay_factor"]) * g / (np.sqrt(h) + a["epsilon"])


def oracle(model, change=None):
    """Losses and final weights in double, from the file alone."""
    s, feeds, node = info_state(model), np.load(INFO / "feeds.npz"), optimizer_node(model)
    if change is not None:
        s.update(change(s))
    curve = []
    for step in range(STEPS):
        loss, g = gradients(s, feeds["X"][step].astype(np.float64), feeds["L"][step])
        curve.append(loss)
        for name in ("W1", "b1", "W2", "b2"):
            update(node, s, g[name], name, s["T"], s["R"])
        s["T"] += 1
    return np.array(curve), s


def perturbed(model):
    """How far the losses move when every weight moves by an fp32 rounding."""
    random, base = np.random.default_rng(3), oracle(model)[0]

    def change(s):
        return {n: s[n] * (1 + random.choice([-1, 1], s[n].shape) * 2.0**-23) for n in ("W1", "W2")}
    return max(np.abs(oracle(model, change)[0] - base).max() for _ in range(2))


def train_info(tools, path, precision, *extra, fetch=("W?", "b?"), run=()):
    plan, out = tools.folder / "info.plan", tools.folder / "info.npz"
    tools.run("ampc", path, "--precision", precision, "-q", "-o", plan, *extra)
    globs = [flag for glob in fetch for flag in ("--fetch", glob)]
    lines = tools.train(plan, INFO / "feeds.npz", STEPS, *globs, "--fetch-out", out, *run)
    return lines, dict(np.load(out))


def changed(tools, name, edit):
    """A copy of a training_info file with other attributes or initial values."""
    model = onnx.load(INFO / f"{name}.onnx")
    edit(model)
    path = tools.folder / "changed.onnx"
    onnx.save(model, path)
    return model, path


def set_attribute(node, **values):
    for key, value in values.items():
        for a in [a for a in node.attribute if a.name == key]:
            node.attribute.remove(a)
        node.attribute.append(helper.make_attribute(key, value))


def set_initial(model, name, array):
    for t in model.training_info[0].algorithm.initializer:
        if t.name == name:
            t.CopyFrom(numpy_helper.from_array(array, name))


def info_recorded(tools):
    """The recorded losses and weights, and the file's own float32 settings in double."""
    said = []
    for name in ("adam", "momentum"):
        model, recorded = onnx.load(INFO / f"{name}.onnx"), np.load(INFO / f"expect_{name}.npz")
        curve, state = oracle(model)
        lines, values = train_info(tools, INFO / f"{name}.onnx", "fp64")
        far = np.abs(losses(lines) - curve).max()
        # losses are logged with 9 digits or more; weights are not rounded at all
        weights = max(np.abs(values[n][-1] - state[n]).max() for n in ("W1", "b1", "W2", "b2"))
        expect(far < 1e-8 and weights < 1e-12, f"{name} fp64: losses differ by {far:.2g}, weights by {weights:.2g}")
        # The recording has 0.9 where the file has the float32 next to it.
        settings = np.abs(curve - recorded["loss"]).max()
        bound = settings + max(FP32, 4 * perturbed(model))
        lines, values = train_info(tools, INFO / f"{name}.onnx", "fp32", fetch=("W?", "b?", "grad:*"))
        far = np.abs(losses(lines) - recorded["loss"]).max()
        expect(far <= bound, f"{name} fp32: losses differ by {far:.2g}, bound {bound:.2g}")
        for n in ("W1", "b1", "W2", "b2"):
            first = recorded[f"grad1_{n}"]
            d = np.linalg.norm(values[f"grad:{n}"][0] - first) / np.linalg.norm(first)
            expect(d < 1e-5, f"{name}: gradient of {n} at step 1 differs by {d:.2g}")
        said.append(f"{name} fp64 {weights:.1e}, fp32 {far:.1e} (bound {bound:.1e})")
    return "; ".join(said)


def info_low(tools):
    """In 16 bits: Momentum is bit for bit the run that --loss and --optimizer give; Adam moves weights as its gradients say."""
    said = []
    momentum = numbers(optimizer_node(onnx.load(INFO / "momentum.onnx")))
    decay = f"weight_decay={momentum['norm_coefficient']:.17g}"
    for precision in ("bf16", "fp16"):
        lines, _ = train_info(tools, INFO / "momentum.onnx", precision)
        own, _ = train_info(tools, INFO / "momentum.onnx", precision, "--loss", "cross-entropy:target=L", "--lr", f"{np.float32(0.05):.17g}",
                            "--optimizer", f"sgd:momentum={momentum['alpha']:.17g},{decay}")
        expect(np.array_equal(losses(lines), losses(own)), f"momentum {precision}: {np.abs(losses(lines) - losses(own)).max():.2g} from sgd")
        model = onnx.load(INFO / "adam.onnx")
        lines, values = train_info(tools, INFO / "adam.onnx", precision, fetch=("W?", "W?_?", "grad:W?"))
        own, first = train_info(tools, INFO / "adam.onnx", precision, "--loss", "cross-entropy:target=L", "--optimizer", "adam", fetch=("grad:W?",))
        expect(np.array_equal(values["grad:W1"][0], first["grad:W1"][0]), f"adam {precision}: another first gradient")
        expect(losses(lines)[0] == losses(own)[0] and losses(lines)[-1] < 0.6 * losses(lines)[0], f"adam {precision}: losses {losses(lines)}")
        s, far = info_state(model), 0
        for step in range(STEPS):
            for n in ("W1", "W2"):
                update(optimizer_node(model), s, values[f"grad:{n}"][step].astype(np.float64), n, step, s["R"])
                for name in (n, f"{n}_V", f"{n}_H"):
                    far = max(far, np.abs(s[name] - values[name][step]).max())
                    s[name] = values[name][step].astype(np.float64)
        expect(far < 1e-6, f"adam {precision}: states are {far:.2g} from what their gradients give")
        said.append(f"adam {precision} steps within {far:.0e}, loss {losses(lines)[-1]:.3f}")
    return "; ".join(said)


def info_optimizers(tools):
    """Every attribute of the three optimizers, and a run that starts in the middle, against double."""
    random, said = np.random.default_rng(5), []

    def start(model, t, slots):
        set_initial(model, "T", np.array(t, np.int64))
        for slot in slots:
            for n, dims in (("W1", (196, 32)), ("b1", (32,)), ("W2", (32, 10)), ("b2", (10,))):
                set_initial(model, f"{n}_{slot}", (random.random(dims) * 1e-3).astype(np.float32))

    def nesterov(model):
        set_attribute(optimizer_node(model), mode="nesterov", alpha=0.8, beta=0.7)
        start(model, 0, "V")

    def momentum(model):
        set_attribute(optimizer_node(model), alpha=0.8, beta=0.7)
        start(model, 3, "V")

    def adam(model):
        set_attribute(optimizer_node(model), norm_coefficient=0.01, norm_coefficient_post=0.002, epsilon=1e-3)
        start(model, 7, "VH")

    def adagrad(model):
        node = optimizer_node(model)
        node.op_type = "Adagrad"
        del node.attribute[:]
        set_attribute(node, decay_factor=0.1, epsilon=1e-3, norm_coefficient=0.02)
        start(model, 2, "V")
    for base, edit in (("momentum", nesterov), ("momentum", momentum), ("adam", adam), ("momentum", adagrad)):
        model, path = changed(tools, base, edit)
        curve, state = oracle(model)
        names = [n for n in state if n[0] in "Wb"]
        far = {}
        for precision, bound in (("fp64", 1e-12), ("fp32", 2e-5)):
            lines, values = train_info(tools, path, precision, fetch=(*names, "T"))
            far[precision] = max(np.abs(values[n][-1] - state[n]).max() for n in names)
            expect(far[precision] < bound, f"{edit.__name__} {precision}: states differ by {far[precision]:.2g}")
            expect(values["T"].ravel()[-1] == state["T"], f"{edit.__name__}: T ends at {values['T'].ravel()[-1]}")
        said.append(f"{edit.__name__} {far['fp64']:.0e}/{far['fp32']:.0e}")
    return ", ".join(said)


def info_general(tools):
    """A schedule that the algorithm computes, and first values from `initialization`."""
    def edit(model):
        info = model.training_info[0]
        algorithm = info.algorithm
        node = optimizer_node(model)
        algorithm.initializer.append(numpy_helper.from_array(np.array(0.9, np.float32), "decay"))
        at = list(algorithm.node).index(node)
        algorithm.node.insert(at, helper.make_node("Mul", ["R", "decay"], ["R_new"]))
        info.update_binding.add(key="R", value="R_new")
        info.initialization.CopyFrom(helper.make_graph(
            [helper.make_node("ConstantOfShape", ["dims"], ["b1_first"], value=numpy_helper.from_array(np.array([0.25], np.float32))),
             helper.make_node("Mul", ["a", "a"], ["R_first"])], "initialization", [], [
                 helper.make_tensor_value_info("b1_first", 1, [32]), helper.make_tensor_value_info("R_first", 1, [])],
            [numpy_helper.from_array(np.array([32], np.int64), "dims"), numpy_helper.from_array(np.array(0.25, np.float32), "a")]))
        info.initialization_binding.add(key="b1", value="b1_first")
        info.initialization_binding.add(key="R", value="R_first")
    model, path = changed(tools, "momentum", edit)
    lines, values = train_info(tools, path, "fp64", fetch=("R", "b1"))
    rates = 0.0625 * float(np.float32(0.9)) ** np.arange(1, STEPS + 1)
    expect(np.allclose(values["R"].ravel(), rates, rtol=1e-12), f"R is {values['R'].ravel()[:3]}")
    expect(np.allclose([line["lr"] for line in lines], rates / float(np.float32(0.9)), rtol=1e-5), "the log has other rates")
    s = info_state(model)
    s["b1"][:] = 0.25
    feeds = np.load(INFO / "feeds.npz")
    first = gradients(s, feeds["X"][0].astype(np.float64), feeds["L"][0])[0]
    expect(abs(float(lines[0]["loss"]) - first) < 1e-8, f"the first loss is {lines[0]['loss']}, expected {first}")
    tools.run("ampc", path, "--lr", "1", expect=2)
    return f"R {rates[0]:.3g} -> {rates[-1]:.3g}"


def info_skips(tools):
    """A skipped step leaves everything that a binding names as it was; a resumed run repeats the bits."""
    lines, values = train_info(tools, INFO / "adam.onnx", "fp16", "--loss-scale", "dynamic:init_scale=2147483648", fetch=("W1", "W1_?", "T"))
    skipped = [i for i, line in enumerate(lines) if line["skipped"]]
    expect(0 in skipped and len(skipped) < STEPS // 2, f"skipped steps: {skipped}")
    start = info_state(onnx.load(INFO / "adam.onnx"))
    for name in ("W1", "W1_V", "W1_H", "T"):
        for i in skipped:
            before = values[name][i - 1] if i > 0 else start[name].astype(values[name].dtype)
            expect(np.array_equal(values[name][i].reshape(before.shape), before), f"{name} moved in skipped step {i}")
    expect(values["T"].ravel()[-1] == STEPS - len(skipped), f"T ends at {values['T'].ravel()[-1]}")
    plan, folder = tools.folder / "info.plan", tools.folder / "checkpoints"
    for steps in (11, STEPS):
        tools.train(plan, INFO / "feeds.npz", steps, "--checkpoint-dir", folder, "--save-weights", tools.folder / "resumed.safetensors",
                    *(() if steps == 11 else ("--resume",)))
    tools.train(plan, INFO / "feeds.npz", STEPS, "--save-weights", tools.folder / "whole.safetensors")
    expect((tools.folder / "resumed.safetensors").read_bytes() == (tools.folder / "whole.safetensors").read_bytes(), "a resumed run differs")
    return f"{len(skipped)} skipped"


# ---- artifacts -------------------------------------------------------------------------------------------------------

def artifact_feeds(tools, name):
    """Feeds under the names of the training model: labels are called labels there."""
    path = tools.folder / f"{name}.npz"
    if not path.exists():
        feeds = np.load(MODELS / name / "feeds.npz")
        inputs = {i.name for i in onnx.load(MODELS / name / "ts_train.onnx").graph.input}
        arrays = {k: feeds[k].astype(np.float32) if feeds[k].dtype == np.float16 else feeds[k] for k in inputs}
        np.savez(path, labels=feeds["label"], **arrays)
    return path


def compile_artifacts(tools, folder, name, precision, *extra, lr=2e-3, plan="artifacts.plan"):
    tools.run("ampc", "--artifacts", folder, "--init-from", MODELS / name / "ts_train.onnx", "--precision", precision, "--lr", f"{lr:.17g}",
              "-q", "-o", tools.folder / plan, *extra)
    return tools.folder / plan


def recorded_artifacts():
    for folder in sorted(ARTIFACTS.iterdir()):
        if (folder / "curve.json").exists():
            recorded = json.loads((folder / "curve.json").read_text())
            yield folder, recorded["model"], recorded["optimizer"].lower(), float(np.float32(recorded["lr"])), np.array(recorded["loss"])


def artifacts_recorded(tools):
    """The losses that ONNX Runtime recorded; in 16 bits as near to fp32 as what autodiff makes of the same model."""
    said = []
    for folder, name, optimizer, lr, curve in recorded_artifacts():
        feeds, runs, own = artifact_feeds(tools, name), {}, {}
        for precision in ("fp32", "fp64", "bf16", "fp16"):
            runs[precision] = losses(tools.train(compile_artifacts(tools, folder, name, precision, lr=lr), feeds, len(curve)))
            update = "sgd" if optimizer == "sgd" else "adam:eps=1e-6"
            plan = tools.folder / "own.plan"
            tools.run("ampc", MODELS / name / "ts_train.onnx", "--loss", "cross-entropy:target=labels", "--optimizer", update, "--lr", f"{lr:.17g}",
                      "--precision", precision, "-q", "-o", plan)
            own[precision] = losses(tools.train(plan, feeds, len(curve)))
        for precision in ("fp32", "fp64"):
            far = np.abs(runs[precision] - curve).max()
            expect(far <= FP32, f"{folder.name} {precision}: losses differ by {far:.2g}, bound {FP32:.2g}")
        text = f"{folder.name} fp32 {np.abs(runs['fp32'] - curve).max():.1e}"
        for precision in ("bf16", "fp16"):
            far, bound = (np.abs(r[precision] - r["fp32"]).max() for r in (runs, own))
            # PyTorch's own spread on this model, or twice that of the same model by autodiff
            recorded = json.loads((MODELS / name / "golden" / "curves.json").read_text())["tolerance"]
            bound = max(recorded["sgd" if optimizer == "sgd" else "adamw"][precision], 2 * bound)
            expect(far <= bound, f"{folder.name} {precision}: {far:.2g} from fp32, bound {bound:.2g}")
            text += f", {precision} {far:.1e} (bound {bound:.1e})"
        said.append(text)
    return "; ".join(said)


def artifacts_gradients(tools):
    """Gradients of step 1: PyTorch's in double; autodiff's to the bit, but for a bias's, whose sum ONNX Runtime writes as
    an op of its own, which the policy runs in fp32."""
    worst = {}
    for folder, name, _, lr, _ in recorded_artifacts():
        golden = np.load(MODELS / name / "golden" / "grads_f64.npz")
        mapping = json.loads((MODELS / name / "exports.json").read_text())["ts_train"]["mapping"]["initializers"]
        largest = max(np.linalg.norm(golden[k]) for k in golden)
        feeds = artifact_feeds(tools, name)
        for precision, tolerance in (("fp64", 1e-7), ("fp32", 1e-5), ("bf16", 2.0**-8), ("fp16", 2.0**-11)):
            got = tools.fetch(compile_artifacts(tools, folder, name, precision, lr=lr), feeds, 1, "grad:*")
            plan = tools.folder / "own.plan"
            tools.run("ampc", MODELS / name / "ts_train.onnx", "--loss", "cross-entropy:target=labels", "--untie", "none", "--precision", precision,
                      "-q", "-o", plan)
            own = tools.fetch(plan, feeds, 1, "grad:*")
            expect(set(got) == set(own), f"{folder.name}: gradients of {sorted(set(got) ^ set(own))}")
            for key, value in got.items():
                entry = mapping.get(key.removeprefix("grad:"), {})
                if name in ("mlp_mnist", "lenet_mnist") and value.ndim > 2:
                    expect(np.array_equal(value, own[key]), f"{folder.name} {precision}: {key} is not autodiff's")
                if entry.get("transform") not in ("identity", "transpose[1, 0]"):
                    continue
                wanted = golden[entry["param"]]
                wanted = wanted.T if entry["transform"] != "identity" else wanted
                norm = np.linalg.norm(wanted)
                norm = norm if norm > 1e-4 * largest else largest
                far, autodiff = (np.linalg.norm(g[0] - wanted) / norm for g in (value, own[key]))
                worst[precision] = max(worst.get(precision, 0), far)
                # in 16 bits: no further from double than autodiff is, up to a rounding
                bound = tolerance if precision in ("fp64", "fp32") else 1.5 * autodiff + tolerance
                expect(far <= bound, f"{folder.name} {precision}: {key} differs by {far:.2g}, bound {bound:.2g}")
    return ", ".join(f"{p} {v:.1e}" for p, v in worst.items())


def artifacts_optimizers(tools):
    """Every mode of AdamWOptimizer, and clipping, against recorded runs of ONNX Runtime."""
    source, name, said = ARTIFACTS / "mlp_mnist_adamw", "mlp_mnist", []
    for variant, recorded in json.loads((source / "variants.json").read_text()).items():
        folder = tools.folder / variant
        folder.mkdir(exist_ok=True)
        (folder / "training_model.onnx").write_bytes((source / "training_model.onnx").read_bytes())
        model = onnx.load(source / "optimizer_model.onnx")
        node, attributes = model.graph.node[0], recorded["attributes"]
        if "max_norm" in attributes:
            node.input[3] = "clipped"
            clip = helper.make_node("InplaceClipGradNorm", ["gradients"], ["clipped"], domain=MICROSOFT, **attributes)
            model.graph.node.insert(0, clip)
        else:
            set_attribute(node, **attributes)
        onnx.save(model, folder / "optimizer_model.onnx")
        plan = compile_artifacts(tools, folder, name, "fp32", lr=float(np.float32(2e-3)))
        curve = losses(tools.train(plan, artifact_feeds(tools, name), len(recorded["loss"])))
        far = np.abs(curve - recorded["loss"]).max()
        expect(far <= FP32, f"{variant}: losses differ by {far:.2g}, bound {FP32:.2g}")
        said.append(f"{variant} {far:.0e}")
    return ", ".join(said)


def artifacts_run(tools):
    """Windows, skips, dropout, evaluation and the export of a trained model."""
    folder, name = ARTIFACTS / "lenet_mnist_adamw", "lenet_mnist"
    feeds = artifact_feeds(tools, name)
    plain = losses(tools.train(compile_artifacts(tools, folder, name, "fp32"), feeds, 8))
    twice = tools.folder / "twice.npz"
    np.savez(twice, **{k: np.repeat(v[:8], 2, axis=0) for k, v in np.load(feeds).items()})
    window = losses(tools.train(compile_artifacts(tools, folder, name, "fp32", "--accumulate", "2"), twice, 8))
    far = np.abs(window - plain).max()
    expect(far <= FP32, f"a window of equal micro-batches: losses differ by {far:.2g}")

    plan = compile_artifacts(tools, folder, name, "fp16", "--loss-scale", "dynamic:init_scale=2147483648")
    lines = tools.train(plan, feeds, 20, "--fetch", "fc?.weight", "--fetch-out", tools.folder / "f.npz")
    skipped = [i for i, line in enumerate(lines) if line["skipped"]]
    values = dict(np.load(tools.folder / "f.npz"))
    initial = {t.name: numpy_helper.to_array(t) for t in onnx.load(MODELS / name / "ts_train.onnx").graph.initializer}
    expect(skipped and len(skipped) < 20, f"skipped steps: {skipped}")
    for weight, steps in values.items():
        for i in skipped:
            expect(np.array_equal(steps[i], steps[i - 1] if i else initial[weight]), f"{weight} moved in skipped step {i}")
    expect(lines[-1]["applied"] == 20 - len(skipped), "applied steps")

    dropout = losses(tools.train(compile_artifacts(tools, ARTIFACTS / "dropout_mlp_adamw", "dropout_mlp", "bf16"), artifact_feeds(tools, "dropout_mlp"), 40))
    expect(dropout[-5:].mean() < 0.8 * dropout[:5].mean(), f"with dropout: {dropout[0]} -> {dropout[-1]}")

    exported = tools.folder / "exported.onnx"
    tools.train(compile_artifacts(tools, folder, name, "bf16"), feeds, 20, "--export-model", exported)
    a, b = onnx.load(exported), onnx.load(MODELS / name / "ts_train.onnx")
    onnx.checker.check_model(a)
    for field in ("input", "output", "node"):
        expect([v.name for v in getattr(a.graph, field)] == [v.name for v in getattr(b.graph, field)], f"the export's {field}s differ")
    expect([t.name for t in a.graph.initializer] == [t.name for t in b.graph.initializer], "the export's initializers differ")
    evaluated = tools.folder / "eval.jsonl"
    evaluated.unlink(missing_ok=True)
    tools.run("amprun", compile_artifacts(tools, folder, name, "bf16"), "--data", f"{feeds}:layout=steps", "--eval-data", f"{feeds}:layout=steps",
              "--steps", "20", "--log", evaluated, "-q", "--threads", "2")
    last = json.loads(evaluated.read_text().splitlines()[-1])["done"]
    again = onnx_loss(exported, feeds)
    expect(abs(last["eval_loss"] - again) < 1e-5, f"evaluation says {last['eval_loss']}, onnxruntime with the export {again}")
    return f"window {far:.0e}, {len(skipped)} skipped, dropout {dropout[0]:.2f} -> {dropout[-1]:.2f}, eval {again:.4f}"


def onnx_loss(path, feeds):
    import onnxruntime
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    total, arrays = 0.0, np.load(feeds)
    for image, label in zip(arrays["image"], arrays["labels"]):
        y = session.run(None, {"image": image})[0].astype(np.float64)
        y -= y.max(1, keepdims=True)
        total += -(y - np.log(np.exp(y).sum(1, keepdims=True)))[np.arange(len(label)), label].mean()
    return total / len(arrays["labels"])


# ---- backward ops ----------------------------------------------------------------------------------------------------

def backward_ops(tools):
    """Each backward op against central differences of its forward op in double."""
    from onnx.reference import ReferenceEvaluator
    random = np.random.default_rng(7)

    def array(*dims):
        return random.uniform(-1, 1, dims)

    def vjp(op, xs, dy, forward=None, **attributes):
        names = [f"x{i}" for i in range(len(xs))]
        node = helper.make_node(op, names, ["y"], **attributes)
        graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(n, 11, x.shape) for n, x in zip(names, xs)],
                                  [helper.make_tensor_value_info("y", 11, None)])
        run = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))

        def evaluate(values):
            return run.run(None, dict(zip(names, values)))[0]
        forward = forward or evaluate
        grads = []
        for i, x in enumerate(xs):
            g = np.zeros_like(x)
            for at in np.ndindex(x.shape):
                sides = []
                for h in (1e-5, -1e-5):
                    moved = [v.copy() for v in xs]
                    moved[i][at] += h
                    sides.append((forward(moved) * dy).sum())
                g[at] = (sides[0] - sides[1]) / 2e-5
            grads.append(g)
        return forward(xs), grads

    def check(label, op, feeds, wanted, constants=None, domain=MICROSOFT, extra=(), **attributes):
        """`feeds` and `constants` in the order of the op's inputs."""
        inputs = {f"i{k}": v for k, v in enumerate(feeds)}
        constant = {f"c{k}": v for k, v in enumerate(constants or [])}
        order = [*inputs, *constant] if not extra else list(extra)
        outputs = [f"o{k}" for k in range(len(wanted))]
        node = helper.make_node(op, order, outputs, name="/node", domain=domain, **attributes)
        types = {np.dtype(np.float64): 1, np.dtype(np.int64): 7, np.dtype(bool): 9}
        graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(k, types[v.dtype], v.shape) for k, v in inputs.items()],
                                  [helper.make_tensor_value_info(o, 1, None) for o in outputs],
                                  [numpy_helper.from_array(v, k) for k, v in constant.items()])
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tools.folder / "op.onnx")
        plan, out = tools.folder / "op.plan", tools.folder / "op.npz"
        tools.run("ampc", tools.folder / "op.onnx", "--forward-only", "--precision", "fp64", "-q", "-o", plan)
        np.savez(tools.folder / "op_feeds.npz", **{k: v[None] for k, v in inputs.items()})
        tools.run("amprun", plan, "--eval-data", f"{tools.folder / 'op_feeds.npz'}:layout=steps", "--steps", "0", "-q",
                  *[f for o in outputs for f in ("--fetch", f"eval:{o}")], "--fetch-out", f"{out}:layout=steps")
        got = np.load(out)
        for o, value in zip(outputs, wanted):
            far = np.abs(got[o][0] - value).max()
            expect(far < 1e-7, f"{label}: differs by {far:.2g}")

    x, dy = array(3, 5), array(3, 5)
    for forward, backward in (("Sigmoid", "SigmoidGrad"), ("Tanh", "TanhGrad"), ("Relu", "ReluGrad")):
        y, (dx,) = vjp(forward, [x], dy)
        check(backward, backward, [dy, y], [dx])
    # the reference evaluator computes this one in fp32
    gelus = {"GeluGrad": lambda v: 0.5 * v[0] * (1 + np.vectorize(math.erf)(v[0] / math.sqrt(2))),
             "FastGeluGrad": lambda v: 0.5 * v[0] * (1 + np.tanh(math.sqrt(2 / math.pi) * (v[0] + 0.044715 * v[0]**3)))}
    for backward, gelu in gelus.items():
        _, (dx,) = vjp("Gelu", [x], dy, forward=gelu)
        check(backward, backward, [dy, x], [dx])
    for axis in (0, -1):
        for forward in ("Softmax", "LogSoftmax"):
            y, (dx,) = vjp(forward, [x], dy, axis=axis)
            check(forward, f"{forward}Grad_13", [dy, y], [dx], axis=axis)
    image, window = array(2, 4, 5, 5), array(6, 2, 3, 2)
    for strides, pads in (([2, 1], [1, 0, 0, 1]), ([1, 2], [0, 0, 1, 1])):
        w, back = array(4, 3, 3, 2), dict(strides=strides, pads=pads, kernel_shape=[3, 2])
        y, _ = vjp("ConvTranspose", [image, w], np.array(0.0), **back)
        up = array(*y.shape)
        _, (dx, dw) = vjp("ConvTranspose", [image, w], up, **back)
        check("ConvTransposeGrad", "ConvTransposeGrad", [up, image, w], [dx, dw, up.sum((0, 2, 3))], **back)
    settings = dict(pads=[1, 0, 0, 1], strides=[2, 1], dilations=[1, 1], group=2, kernel_shape=[3, 2])
    dy4 = array(2, 6, 2, 5)
    _, (dx, dw) = vjp("Conv", [image, window], dy4, **settings)
    check("ConvGrad", "ConvGrad", [dy4, image, window], [dx, dw, dy4.sum((0, 2, 3))], **settings)
    a, b = array(2, 4, 3), array(2, 5, 4)
    check("FusedMatMul", "FusedMatMul", [a, b], [0.5 * a.swapaxes(1, 2) @ b.swapaxes(1, 2)], transA=1, transB=1, alpha=0.5)
    scale, mean, inv = array(5), x.mean(1, keepdims=True), 1 / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    _, grads = vjp("LayerNormalization", [x, scale, array(5)], dy, axis=-1, epsilon=1e-5)
    check("LayerNormalizationGrad", "LayerNormalizationGrad", [dy, x, scale, mean, inv], grads, axis=-1)
    labels, ignored = np.array([1, 4, 2]), np.array([1, 3, 2])
    weights = np.array([0.5, 2, 1, 3, 0.25])

    def cross_entropy(v, label, ignore, w, reduction):
        z = v - v.max(1, keepdims=True)
        logp = z - np.log(np.exp(z).sum(1, keepdims=True))
        counted = np.where(label == ignore, 0, w[label])
        total = -(logp[np.arange(3), label] * counted).sum()
        return np.array(total / counted.sum() if reduction == "mean" else total)
    logp = x - x.max(1, keepdims=True)
    logp = logp - np.log(np.exp(logp).sum(1, keepdims=True))
    for reduction in ("mean", "sum"):
        for label, ignore, w in ((labels, None, None), (ignored, 3, None), (labels, None, weights), (ignored, 3, weights)):
            d = np.array(1.5)
            _, (dx,) = vjp("Identity", [x], d, forward=lambda v: cross_entropy(v[0], label, ignore, np.ones(5) if w is None else w, reduction))
            feeds = [d, logp, label] + ([] if w is None else [w])
            if ignore is None:
                check("SoftmaxCrossEntropyLossGrad", "SoftmaxCrossEntropyLossGrad", feeds, [dx], reduction=reduction)
                continue
            names = ["i0", "i1", "i2", "" if w is None else "i3", "c0"]
            check("SoftmaxCrossEntropyLossInternalGrad", "SoftmaxCrossEntropyLossInternalGrad", feeds, [dx], [np.array(ignore)],
                  extra=names, reduction=reduction)
            check("SoftmaxCrossEntropyLossInternal", "SoftmaxCrossEntropyLossInternal", [x, label] + ([] if w is None else [w]),
                  [cross_entropy(x, label, ignore, np.ones(5) if w is None else w, reduction)], [np.array(ignore)],
                  extra=["i0", "i1", "" if w is None else "i2", "c0"], reduction=reduction)
    rows = np.array([[2, 0], [1, 2]])
    d = array(4, 2, 2, 3)
    wanted = np.zeros((4, 3, 3))
    for a, b in np.ndindex(2, 2):
        wanted[:, rows[a, b]] += d[:, a, b]
    check("GatherGrad", "GatherGrad", [rows, d], [wanted], [np.array([4, 3, 3])], extra=["c0", "i0", "i1"], axis=1)
    mask = random.random((3, 5)) < 0.7
    check("DropoutGrad", "DropoutGrad", [dy, mask], [np.where(mask, dy / 0.75, 0)], [np.array(0.25, np.float32), np.array(True)])
    check("Scale", "Scale", [x], [x / 4], [np.array(4, np.int64)], scale_down=1)
    check("Scale", "Scale", [x], [x * 4], [np.array([4], np.int64)])
    return "all within 1e-7 of central differences"


if __name__ == "__main__":
    run_checks([info_recorded, info_low, info_optimizers, info_general, info_skips, artifacts_recorded, artifacts_gradients,
                artifacts_optimizers, artifacts_run, backward_ops])
