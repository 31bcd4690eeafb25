#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dtypes after autocast against PyTorch's own, for every op of the models and for single ops.

usage: autocast.py BIN      BIN: folder of ampc and ampc-opt

Single ops: autocast_ops_{cuda,cpu}.json against autocast_map.json, which names the ONNX node that an expression exports to.
A low operand is made by PRelu, which every policy lowers. Models: the order of the computing ops of golden/autocast_*.json.
The loss stays in fp32 throughout, which is more exact than PyTorch's cross-entropy on CUDA (log_softmax in the low dtype).
autocast_unmapped.json says why the other expressions have no node.
autocast_differences.json lists reasoned differences; one that is listed but does not occur fails, too.
"""
import json
import pathlib
import re
import sys

from harness import NAMES, Failed, Model, Tools

HERE = pathlib.Path(__file__).resolve().parent
SHORT = {"float": "float32", "float16": "float16", "bfloat16": "bfloat16", "double": "float64", "bool": "bool"}
# aten op -> the nodes that it exports to.
ATEN = {
    "aten.convolution": ("Conv", "ConvTranspose"), "aten.addmm": ("Gemm",), "aten.mm": ("MatMul",), "aten.relu": ("Relu",),
    "aten.native_batch_norm": ("BatchNormTrain",), "aten._native_batch_norm_legit": ("BatchNormTrain",),
    "aten.max_pool2d_with_indices": ("MaxPool",), "aten.mean": ("ReduceMean", "GlobalAveragePool"), "aten.sigmoid": ("Sigmoid",),
    "aten.add": ("Add",), "aten.cudnn_batch_norm": ("BatchNormTrain",), "aten.native_layer_norm": ("LayerNormalization",),
    "aten.tanh": ("Tanh",), "aten.gelu": ("Gelu",), "aten.cat": ("Concat",),
    "attention": ("Attention",), "aten._scaled_dot_product_flash_attention_for_cpu": ("Attention",),
    "recurrent": ("RNN", "GRU", "LSTM"),
}
# Two nodes, or rows of a recording, that are one op of the other side: a linear layer with its bias.
PAIRS = {("MatMul", "Add"): "Gemm", ("aten.mm", "aten.add"): "aten.addmm"}


def operand(name, dims, low):
    """Feed and node text of an operand."""
    form = f"float{json.dumps(dims) if dims else ''}"
    if not low:
        return f"{form} {name}", ""
    return f"{form} {name}_wide", f"  {name} = PRelu ({name}_wide, slope)\n"


def module(table, combination):
    feeds = ["int64[4] i", "int64[3] i3", "int64[4,2] i42", "int64[4,2,2] i422", "bool[4,8] b", "float[3] c3", "float[4] c4", "float slope", "float zero", "float one"]
    nodes = ["  axis1 = Constant <value: tensor = int64[1] {1}> ()\n  n1 = Constant <value: tensor = int64[1] {1}> ()\n"
             "  n3 = Constant <value: tensor = int64[1] {3}> ()\n  pads = Constant <value: tensor = int64[4] {0, 1, 0, 1}> ()\n"
             "  axis = Constant <value: tensor = int64 {1}> ()\n  repeats = Constant <value: tensor = int64[2] {2, 1}> ()\n"
             "  shape84 = Constant <value: tensor = int64[2] {8, 4}> ()\n  n8 = Constant <value: tensor = int64[1] {8}> ()\n"
             "  scales = Constant <value: tensor = float[4] {1, 1, 2, 2}> ()\n  scales3 = Constant <value: tensor = float[5] {1, 1, 2, 2, 2}> ()\n"
             "  shape48 = Constant <value: tensor = int64[2] {4, 8}> ()\n"]
    outputs = []
    for name, row in table.items():
        text = row["node"]
        for letter in "tuv":
            if letter not in row:
                continue
            feed, node = operand(f"{name}_{letter}", row[letter], combination["t" if letter == "t" else "u"])
            feeds.append(feed)
            nodes.append(node)
            text = re.sub(rf"(?<=[(, ]){letter}(?=[,)])", f"{name}_{letter}", text)
        results = [f"{name}_y"] + [f"{name}_y{k}" for k in range(1, row.get("outputs", 1))]
        nodes.append(f'  ["{name}"] {", ".join(results)} = {text}\n')
        outputs.append(f"{name}_y")
    return f"train ({', '.join(feeds)}) => ({', '.join(outputs)})\n{{\n{''.join(nodes)}}}\n"


COMBINATIONS = {"f32": {"t": False, "u": False}, "low": {"t": True, "u": True}, "t=low,u=f32": {"t": True, "u": False},
                "t=f32,u=low": {"t": False, "u": True}}


def single_ops(tools, device, listed):
    golden = json.loads((HERE / f"autocast_ops_{device}.json").read_text())
    table = json.loads((HERE / "autocast_map.json").read_text())
    unmapped = {name for names in json.loads((HERE / "autocast_unmapped.json").read_text()).values() for name in names}
    if set(table) | unmapped != set(golden) or set(table) & unmapped:
        raise Failed(f"autocast_map.json and autocast_unmapped.json are not what is recorded on {device}: "
                     f"{sorted((set(table) | unmapped) ^ set(golden))} {sorted(set(table) & unmapped)}")
    compared, differences = 0, []
    for precision in ("fp16", "bf16"):
        for combination, low in COMBINATIONS.items():
            path = tools.folder / "ops.onnxtext"
            path.write_text(module(table, low))
            text = tools.run("ampc-opt", "--passes=autocast", "--precision", precision, "--policy", f"torch-{device}", path).stdout
            found = dict(re.findall(r'"(\w+)_y"[^\n]*?# (\w+)', text))
            for name in table:
                expected = golden[name][precision].get(combination, {}).get("out")
                if expected is None:
                    continue
                compared += 1
                if SHORT[found[name]] != expected:
                    differences.append((f"{device} {precision} {name} {combination}", f"{SHORT[found[name]]}, PyTorch {expected}"))
    unexpected = [d for d in differences if f"{device} {d[0].split()[2]} {d[0].split()[3]}" not in listed]
    seen = {f"{device} {d[0].split()[2]} {d[0].split()[3]}" for d in differences}
    stale = [k for k in listed if k.startswith(device + " ") and k not in seen]
    print(f"single ops, {device}: {len(table)} of {len(golden)} expressions, {compared} results, {len(differences)} differ, "
          f"{len(differences) - len(unexpected)} of them listed")
    for where, what in unexpected:
        print(f"  {where}: {what}")
    for key in stale:
        print(f"  listed in autocast_differences.json, but equal: {key}")
    return len(unexpected) + len(stale)


def model_ops(tools, name, variant, device, precision):
    """(op, float operand dtypes, result dtype) in order: ours and PyTorch's."""
    model = Model(name)
    written = tools.compile(model, variant, precision, "sgd", "--stop-after", "autocast", "--emit", "text", policy=f"torch-{device}")
    text = written.read_text()
    body = text[text.index("\ntrain "):]
    body = body[:body.index("\n}")]
    types = dict(re.findall(r'"([^"]+)" : (\w+)', text[:text.index("\ntrain ")]))
    types.update((n, t) for t, n in re.findall(r'(\w+)(?:\[[^\]]*\])? "([^"]+)"', body[:body.index("{")]))
    ours = []
    for line in body.splitlines():
        if line.strip().startswith(('["loss"]', '["metric"]')):
            if re.search(r"# (bfloat16|float16)\b", line) and " = Reshape " not in line:  # the logits as rows
                raise Failed(f"{name} {variant}: the loss does not stay in fp32: {line.strip()}")
            continue
        match = re.match(r'\s+(?:\["[^"]*"\] )?(.*?) = (?:ai\.ampc\.)?(\w+) .*\(([^()]*)\)\s+# (.*)', line)
        if not match:
            continue
        results, op, inputs, forms = match.groups()
        for result, form in zip(re.findall(r'"([^"]*)"', results), re.split(r", (?=[a-z])", forms)):
            types[result] = re.match(r"\w+", form).group()
        operands = [SHORT.get(types.get(i, ""), "") for i in re.findall(r'"([^"]*)"', inputs)]
        ours.append((op, [t for t in operands if t.startswith(("float", "bfloat"))], SHORT.get(types[re.findall(r'"([^"]*)"', results)[0]], "")))
    rows = json.loads((model.folder / "golden" / f"autocast_{device}_{precision}.json").read_text())
    layer = [i for i, r in enumerate(rows) if r["module"] == "rnn"]
    if layer:
        rows[layer[0]:layer[-1] + 1] = [recurrent_layer(rows[layer[0]:layer[-1] + 1])]
        ours = from_layer(ours)
    rows = outside_attention(r for r in rows if r["module"] != "(loss)")
    theirs = [(r["op"], [t for t in r["in"] if t.startswith(("float", "bfloat"))], r["out"][0]) for r in rows]
    return ours, theirs


def recurrent_layer(rows):
    """PyTorch's rows of a recurrent layer, which ran step by step, as one of what its products read and give."""
    products = [r for r in rows if r["op"] in ("aten.mm", "aten.addmm", "aten.mkldnn_rnn_layer")]
    return {"op": "recurrent", "module": "rnn", "in": [t for r in products for t in r["in"]], "out": products[0]["out"]}


def from_layer(ours):
    """The layer and what follows."""
    at = [i for i, row in enumerate(ours) if row[0] in ("RNN", "GRU", "LSTM")]
    return ours[at[0]:] if at else ours


def outside_attention(rows):
    """Attention is one op; on CUDA the recording ran the math of a machine without its kernel: two scalings to two products,
    between casts of q, k and v up and one of the result down."""
    products, casts = None, []
    for row in rows:
        copy = row["op"] == "aten._to_copy"
        if products is None and row["op"] == "aten.mul" and re.search(r"self_attn$|^blocks\.\d+$", row["module"]):
            products = 0
        if products is None:
            casts += [row] if copy else []
            yield row
        elif products < 2:
            products += row["op"] == "aten.bmm"
        elif copy:
            products = None
            yield {"op": "attention", "module": row["module"], "in": [t for c in casts[-3:] for t in c["in"]], "out": row["out"]}


def paired(rows):
    merged = []
    for op, operands, result in rows:
        pair = PAIRS.get((merged[-1][0], op)) if merged else None
        if pair and set(operands) == {merged[-1][2]}:
            merged[-1] = (pair, merged[-1][1], result)
        else:
            merged.append((op, operands, result))
    return merged


def compare_model(tools, name, variant, device, precision):
    ours, theirs = model_ops(tools, name, variant, device, precision)
    kinds = {op for ops in ATEN.values() for op in ops}
    ours = paired(row for row in ours if row[0] in kinds and row[1])
    theirs = paired(row for row in theirs if row[0] in ATEN)
    if len(ours) != len(theirs):
        raise Failed(f"{name} {variant}: {len(ours)} computing nodes {[o[0] for o in ours]}, PyTorch has {len(theirs)} {[t[0] for t in theirs]}")
    differences = []
    for (op, operands, result), (aten, golden_operands, golden_result) in zip(ours, theirs):
        if op not in ATEN[aten]:
            raise Failed(f"{name} {variant}: {op} stands where PyTorch runs {aten}")
        if aten in ("aten.add", "aten.cat") and len(set(golden_operands)) > 1:
            golden_operands = [golden_result]  # PyTorch widens inside
        if op == "Attention":  # the mask stays in fp32: a sum of two of float16's least numbers would be infinite
            operands, golden_operands = operands[:3], golden_operands[:3]
        if result != golden_result or set(operands) != set(golden_operands):
            differences.append(f"  {name} {variant} {device} {precision}: {op} {operands} -> {result}, PyTorch {golden_operands} -> {golden_result}")
    return len(ours), differences


def main():
    tools = Tools(sys.argv[1])
    listed = json.loads((HERE / "autocast_differences.json").read_text())
    failures = sum(single_ops(tools, device, listed) for device in ("cuda", "cpu"))
    ops = 0
    for name in NAMES:
        for variant in ("ts_train", "dynamo_train", *(["opset15_ts_train", "opset23_dynamo_train"] if name == "nanogpt_char" else [])):
            for device in ("cuda", "cpu"):
                for precision in ("fp16", "bf16"):
                    try:
                        count, differences = compare_model(tools, name, variant, device, precision)
                    except Failed as failed:
                        count, differences = 0, [f"  {failed}"]
                    ops += count
                    failures += len(differences)
                    for line in differences:
                        print(line)
    print(f"models: {ops} ops compared; {failures} failures in all")
    sys.exit(failures != 0)


main()
