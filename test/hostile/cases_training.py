# SPDX-License-Identifier: Apache-2.0
"""Models that bring their training along, and training artifacts, damaged in every part."""

import os

import numpy as np
import onnx
from onnx import helper, numpy_helper

from case import Case, directory

MODELS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden", "models")
PREVIEW, MICROSOFT = "ai.onnx.preview.training", "com.microsoft"


# ---- training_info ---------------------------------------------------------------------------------------------------

def info(name, exit, pattern, edit, base="momentum", argv=()):
    m = onnx.load(os.path.join(MODELS, "training_info", base + ".onnx"))
    edit(m, m.training_info[0])
    return Case("training_info: " + name, ["ampc", "m.onnx", "-o", "out.plan", "-q", *argv], exit, pattern,
                {"m.onnx": m.SerializeToString()})


def node_of(t, op):
    return next(n for n in t.algorithm.node if n.op_type == op)


def initializer_of(t, name):
    return next(i for i in t.algorithm.initializer if i.name == name)


def drop(field, keep):
    kept = [item for item in field if keep(item)]
    del field[:]
    field.extend(kept)


def set_attribute(node, **values):
    drop(node.attribute, lambda a: a.name not in values)
    node.attribute.extend(helper.make_attribute(k, v) for k, v in values.items())


def another_node(m, t):
    node_of(t, "Relu").op_type = "Tanh"


def integer_weight(m, t):
    g = node_of(t, "Gradient")
    set_attribute(g, xs=["one", "b1", "W2"], zs=["X", "L"])
    g.input[:] = ["one", "b1", "W2", "X", "L"]
    del g.output[3:]


def apart(m, t):
    """W1 is read by a node that the loss does not depend on."""
    for nodes in (m.graph.node, t.algorithm.node):
        for n in nodes:
            if n.op_type == "MatMul" and n.input[1] == "W1":
                n.input[1] = "W1_fixed"
    m.graph.initializer.append(numpy_helper.from_array(np.ones((196, 32), np.float32), "W1_fixed"))
    m.graph.node.append(helper.make_node("Neg", ["W1"], ["W1_neg"]))
    m.graph.output.append(helper.make_tensor_value_info("W1_neg", 1, [196, 32]))


def unread(m, t):
    apart(m, t)
    m.graph.output.pop()


def twice(m, t):
    m.training_info.append(onnx.TrainingInfoProto())
    m.training_info[1].CopyFrom(t)


def no_gradient(m, t):
    drop(t.algorithm.node, lambda n: n.op_type != "Gradient")


def two_gradients(m, t):
    second = t.algorithm.node.add()
    second.CopyFrom(node_of(t, "Gradient"))
    second.name = "second"
    second.output[:] = ["a", "b", "c", "d"]


def elsewhere(m, t):
    node_of(t, "Gradient").input[0] = "b1"


def of_data(m, t):
    g = node_of(t, "Gradient")
    set_attribute(g, xs=["W1", "b1", "W2", "X"], zs=["L"])
    g.input[:] = ["W1", "b1", "W2", "X", "L"]


def bad_loss(m, t):
    set_attribute(node_of(t, "Gradient"), y="nothing")


def vector_loss(m, t):
    set_attribute(node_of(t, "Gradient"), y="Y")


def unknown_key(m, t):
    t.update_binding[0].key = "W3"


def key_twice(m, t):
    t.update_binding[1].key = "W1"


def unmade_value(m, t):
    t.update_binding[0].value = "W1_newer"


def wrong_value(m, t):
    t.update_binding[0].value, t.update_binding[1].value = "b1_new", "W1_new"


def no_bindings(m, t):
    del t.update_binding[:]


def reads_data(m, t):
    t.algorithm.node.append(helper.make_node("ReduceMean", ["X"], ["X_mean"], name="/mean", keepdims=0))
    t.algorithm.node.append(helper.make_node("Mul", ["R", "X_mean"], ["R_new"]))
    t.update_binding.add(key="R", value="R_new")


def rate_is_input(m, t):
    drop(t.algorithm.initializer, lambda i: i.name != "R")
    t.algorithm.input.append(helper.make_tensor_value_info("R", 1, []))


def wide_rate(m, t):
    initializer_of(t, "R").CopyFrom(numpy_helper.from_array(np.ones(3, np.float32), "R"))


def short_moment(m, t):
    initializer_of(t, "W1_V").CopyFrom(numpy_helper.from_array(np.zeros((196, 31), np.float32), "W1_V"))


def missing_moment(m, t):
    del node_of(t, "Momentum").input[-1]


def bad_mode(m, t):
    set_attribute(node_of(t, "Momentum"), mode="fast")


def foreign_op(m, t):
    n = node_of(t, "Momentum")
    n.op_type, n.domain, n.name = "Lion", "com.example", "/lion"


def sparse_moment(m, t):
    values = numpy_helper.from_array(np.ones(1, np.float32), "S")
    t.algorithm.sparse_initializer.append(helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([0]), "at"), [4]))


def same_name(m, t):
    initializer_of(t, "R").name = "W1"


def random_first(m, t):
    t.initialization.CopyFrom(helper.make_graph(
        [helper.make_node("RandomNormal", [], ["first"], name="/first", shape=[32])], "initialization", [],
        [helper.make_tensor_value_info("first", 1, [32])]))
    t.initialization_binding.add(key="b1", value="first")


def wrong_first(m, t):
    t.initialization.CopyFrom(helper.make_graph(
        [helper.make_node("Constant", [], ["first"], value=numpy_helper.from_array(np.zeros(31, np.float32)))], "initialization", [],
        [helper.make_tensor_value_info("first", 1, [31])]))
    t.initialization_binding.add(key="b1", value="first")


def cycle(m, t):
    t.algorithm.node.append(helper.make_node("Add", ["Z", "one"], ["Z"], name="/z"))
    t.update_binding[-1].value = "Z"


INFO = [
    info("the algorithm makes a value in another way", 1, r"E0116.*makes 'hid' by node 'Tanh:hid' .*by node 'Relu:hid'", another_node),
    info("a gradient of what nothing reads", 1, r"E0119.*gradient of 'W1', but no node in front of the loss reads it", unread),
    info("a gradient of what the loss does not need", 1, r"E0406.*'grad:W1', but no path", apart),
    info("a gradient of an integer", 1, r"E0119|E0107", integer_weight),
    info("two of them", 3, r"E0116.*2 training_info", twice),
    info("no Gradient", 3, r"E0116.*no Gradient node", no_gradient),
    info("two Gradient nodes", 3, r"E0116.*several Gradient nodes .*'second'", two_gradients),
    info("a gradient at another point", 3, r"E0116.*the inputs are other values", elsewhere),
    info("a gradient of the data", 3, r"E0116.*'X', which is no initializer", of_data),
    info("y is no value", 1, r"E0103.*'nothing' is no value", bad_loss),
    info("y is no scalar", 1, r"E0205.*'Y' is float\[16,10\], a scalar", vector_loss),
    info("a binding of nothing", 1, r"E0116.*update_binding.*'W3', which is no initializer", unknown_key),
    info("two bindings of one", 1, r"E0116.*'W1' twice", key_twice),
    info("a binding to nothing", 1, r"E0116.*'W1': no node .*'W1_newer'", unmade_value),
    info("a binding of another shape", 1, r"E0116.*'W1': it is float\[196,32\], .*'b1_new' is float\[32\]", wrong_value),
    info("no bindings", 1, r"E0116.*updates nothing", no_bindings),
    info("the update reads data", 3, r"E0116.*'/mean'.*reads input 'X'", reads_data),
    info("the rate is an input", 3, r"E0116.*reads input 'R'.*must be initializers", rate_is_input),
    info("a rate of three", 1, r"E0107.*R is float\[3\], a scalar", wide_rate),
    info("a moment of another shape", 1, r"E0107.*'W1_V' is float\[196,31\], its weight 'W1' is float\[196,32\]", short_moment),
    info("a moment too few", 1, r"E0107.*3 lists", missing_moment),
    info("a mode of its own", 1, r"E0107.*mode 'fast': standard or nesterov", bad_mode),
    info("an optimizer of its own", 3, r"E0102.*1 node is not supported:\s+com.example.Lion.*'/lion'", foreign_op),
    info("a sparse initializer", 3, r"E0104.*'S' is sparse", sparse_moment),
    info("a name of the model's", 1, r"E0103.*'W1' stands in the model twice", same_name),
    info("random first values", 3, r"E0116.*'b1': 'first' is not computed from constants", random_first),
    info("first values of another shape", 1, r"E0116.*'b1': it is float\[32\].*float\[31\]", wrong_first),
    info("an update in a circle", 1, r"E0103.*cycle", cycle),
    info("with --optimizer", 2, r"E0117.*optimizer of its own", lambda m, t: None, argv=["--optimizer", "adam"]),
    info("with --freeze", 2, r"E0117.*says what trains", lambda m, t: None, argv=["--freeze", "W1"]),
]


# ---- artifacts -------------------------------------------------------------------------------------------------------

COMMAND = ["ampc", "--artifacts", "dir", "--init-from", "w.onnx", "-o", "out.plan", "-q"]


def artifacts(name, exit, pattern, edit=None, argv=COMMAND, without=(), files=None, model="mlp_mnist", of="mlp_mnist_adamw"):
    folder = os.path.join(MODELS, "ort_artifacts", of)
    train = onnx.load(os.path.join(folder, "training_model.onnx"))
    optimizer = onnx.load(os.path.join(folder, "optimizer_model.onnx"))
    weights = onnx.load(os.path.join(MODELS, model, "ts_train.onnx"))
    if edit is not None:
        edit(train, optimizer, weights)
    made = {"dir/training_model.onnx": train.SerializeToString(), "dir/optimizer_model.onnx": optimizer.SerializeToString(),
            "w.onnx": weights.SerializeToString()}
    made.update(files or {})
    return Case("artifacts: " + name, list(argv), exit, pattern, {k: v for k, v in made.items() if k not in without})


def no_accumulators(train, optimizer, weights):
    drop(train.graph.node, lambda n: not n.op_type.startswith("InPlaceAccumulator"))
    drop(train.graph.output, lambda o: "accumulation" not in o.name)


def other_weights(train, optimizer, weights):
    for t in weights.graph.initializer:
        if t.name == "fc1.weight":
            t.name = "fc1.w"


def other_shape(train, optimizer, weights):
    for t in weights.graph.initializer:
        if t.name == "fc1.bias":
            t.CopyFrom(numpy_helper.from_array(np.zeros(63, np.float32), t.name))


def odd_buffer(train, optimizer, weights):
    for n in train.graph.node:
        n.input[:] = [i.replace("fc2.bias_grad.accumulation.buffer", "fc9.bias_grad.accumulation.buffer") for i in n.input]


def no_seed(train, optimizer, weights):
    for n in train.graph.node:
        n.input[:] = ["seed" if i.endswith("loss::2_grad") else i for i in n.input]
    for t in train.graph.initializer:
        if t.name.endswith("loss::2_grad"):
            t.name = "seed"


def seed_of(value):
    def edit(train, optimizer, weights):
        for t in train.graph.initializer:
            if t.name.endswith("loss::2_grad"):
                t.CopyFrom(numpy_helper.from_array(value, t.name))
    return edit


def foreign_ops(train, optimizer, weights):
    for n in train.graph.node:
        if n.op_type == "ReluGrad":
            n.op_type = "QuickGeluGrad"
        if n.op_type == "SoftmaxCrossEntropyLossGrad":
            n.op_type = "YieldOp"


def other_optimizer(train, optimizer, weights):
    optimizer.graph.node[0].op_type = "LambOptimizer"


def no_optimizer(train, optimizer, weights):
    del optimizer.graph.node[:]


def uncorrected(train, optimizer, weights):
    set_attribute(optimizer.graph.node[0], adam_mode=0, correct_bias=0)


def wrong_gradient(train, optimizer, weights):
    for n in train.graph.node:
        if n.op_type == "InPlaceAccumulatorV2" and n.input[1] == "fc1.weight_grad":
            n.input[1] = "fc1.bias_grad"


def unread_parameter(train, optimizer, weights):
    for n in train.graph.node:
        if n.op_type == "Gemm" and len(n.input) > 2 and n.input[2] == "fc2.bias":
            del n.input[2]


def unmade_gradient(train, optimizer, weights):
    for n in train.graph.node:
        if n.op_type == "InPlaceAccumulatorV2" and n.input[1] == "fc1.weight_grad":
            n.input[1] = "nothing"


def wrong_mask(train, optimizer, weights):
    for n in train.graph.node:
        if n.op_type == "MaxPoolGrad":
            n.input[1] = "/MaxPool_output_0_mask" if n.input[1] == "/MaxPool_1_output_0_mask" else n.input[1]


def no_mask(train, optimizer, weights):
    for n in train.graph.node:
        if n.op_type == "MaxPoolGrad":
            n.input[1] = "labels"


def wrong_conv(train, optimizer, weights):
    for n in train.graph.node:
        if n.op_type == "ConvGrad":
            set_attribute(n, pads=[1, 1, 1, 1])


def short_relu(train, optimizer, weights):
    for n in train.graph.node:
        if n.op_type == "ReluGrad":
            n.input[1] = "image"


def no_operand(train, optimizer, weights):
    for n in train.graph.node:
        if n.op_type == "SoftmaxCrossEntropyLossGrad":
            del n.input[1:]


LENET = {"model": "lenet_mnist", "of": "lenet_mnist_adamw"}
ARTIFACTS = [
    artifacts("a folder without the training model", 1, r"E0118.*'dir' has no readable training_model.onnx", without=("dir/training_model.onnx",)),
    artifacts("a folder without the optimizer", 1, r"E0118.*'dir' has no readable optimizer_model.onnx", without=("dir/optimizer_model.onnx",)),
    artifacts("no folder", 1, r"E0118.*'dir' has no readable", without=("dir/training_model.onnx", "dir/optimizer_model.onnx")),
    artifacts("no weights", 6, r"w.onnx.*E0501", without=("w.onnx",)),
    artifacts("a training model that is noise", 1, r"dir/training_model.onnx.*E0101", files={"dir/training_model.onnx": b"\x08\x01noise"}),
    artifacts("an optimizer that is empty", 1, r"dir/optimizer_model.onnx.*E0101", files={"dir/optimizer_model.onnx": b""}),
    artifacts("a training model that is a folder", 1, r"E0118|E0101|E0501", files={"dir/training_model.onnx": directory}),
    artifacts("no accumulators", 1, r"E0118.*no gradient is accumulated", no_accumulators),
    artifacts("weights under other names", 1, r"E0119.*do not join by names: .*'fc1.weight' is no initializer", other_weights),
    artifacts("weights of another shape", 1, r"E0119.*'fc1.bias' is float\[63\], .*\[64\]", other_shape),
    artifacts("weights of another model", 1, r"E0119.*do not join by names", model="rnn_mnist"),
    artifacts("a buffer of another parameter", 1, r"E0119.*'fc9.bias' is no initializer", odd_buffer),
    artifacts("no seed", 1, r"E0118.*seeds the backward pass, but no initializer", no_seed),
    artifacts("a seed of two", 3, r"E0118.*seed.*is 2, 1 is expected", seed_of(np.array(2, np.float32))),
    artifacts("a seed of many", 3, r"E0118.*seed.*float\[3\], a scalar", seed_of(np.ones(3, np.float32))),
    artifacts("ops that are not supported", 3, r"E0102.*2 ops in 2 nodes are not supported:\s+com.microsoft.QuickGeluGrad.*\s+com.microsoft.YieldOp", foreign_ops),
    artifacts("another optimizer", 3, r"E0102.*com.microsoft.LambOptimizer", other_optimizer),
    artifacts("no optimizer", 1, r"E0118.*no optimizer", no_optimizer),
    artifacts("a mode that ONNX Runtime refuses", 1, r"E0118.*adam_mode 0 wants correct_bias 1", uncorrected),
    artifacts("a parameter that nothing reads", 1, r"E0119.*gradient of 'fc2.bias', but no node in front of the loss reads it", unread_parameter),
    artifacts("another parameter's gradient", 1, r"E0404.*'fc1.weight' is float\[64\], the parameter is float\[64,784\]", wrong_gradient),
    artifacts("a gradient that nothing makes", 1, r"E0103.*'nothing' is no value", unmade_gradient),
    artifacts("the indices of another pool", 1, r"E0107.*the gradient is .*the Indices are", wrong_mask, **LENET),
    artifacts("indices that are labels", 1, r"E0107.*not the Indices of a MaxPool", no_mask, **LENET),
    artifacts("a convolution's gradient with other pads", 1, r"E0107.*the gradient is .*, but the result of Conv is", wrong_conv, **LENET),
    artifacts("a gradient of another shape", 1, r"E0107.*ReluGrad|E0107.*the gradient is", short_relu),
    artifacts("operands left out", 1, r"E0107.*input 1 is required but left out", no_operand),
    artifacts("with --loss", 2, r"E0609.*--loss with --artifacts", argv=[*COMMAND, "--loss", "mse"]),
    artifacts("with --optimizer", 2, r"E0609.*--optimizer with --artifacts", argv=[*COMMAND, "--optimizer", "sgd"]),
    artifacts("with a model", 2, r"E0609.*'w.onnx' is one too many", argv=["ampc", "w.onnx", *COMMAND[1:]]),
    artifacts("without --init-from", 2, r"E0609.*--artifacts needs the initial weights", argv=["ampc", "--artifacts", "dir", "-o", "out.plan"]),
    artifacts("--init-from alone", 2, r"E0609.*--init-from goes with --artifacts", argv=["ampc", "w.onnx", "--init-from", "w.onnx", "-o", "out.plan"]),
    artifacts("--info", 2, r"E0609.*--info with --artifacts", argv=[*COMMAND, "--info"]),
    artifacts("-o in their place", 2, r"E0609.*a part of the artifacts", argv=[*COMMAND[:-3], "-o", "dir/training_model.onnx"]),
]


def cases():
    yield from INFO
    yield from ARTIFACTS
