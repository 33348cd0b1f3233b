"""Docstrings out of the operator table."""
import difflib
import textwrap

WIDTH = 100
SHAPES = {  # smx_shape_rule of softmax.h
    0: "the shape of %s",
    1: "the shape of %s without the axis",
    2: "[segments + 1]",
    3: "[n], the same for every row",
    4: "the shape of %s, with k elements along the axis",
    5: "one value for all rows",
}
ROW, SCALAR = 1, 5
MEANT = {  # what others call it -> what it is called here
    "dim": "axis", "dims": "axis", "keepdim": "keepdims", "keep_dims": "keepdims",
    "input": "x", "a": "x", "logits": "x", "z": "x", "labels": "target", "weight": "class_weight",
    "mask": "where", "T": "temperature", "tau": "temperature", "temp": "temperature",
    "typical_p": "typical", "repetition_penalty": "repetition", "frequency_penalty": "frequency",
    "presence_penalty": "frequency", "logit_bias": "bias", "no_repeat_ngram_size": "no_repeat",
    "num_samples": "draws", "size": "draws", "generator": "seed", "rng": "seed", "random_state": "seed",
    "key": "seed",
}  # elsewhere -> here


def number(value):
    return "2^53" if value == 2**53 else "%.7g" % value


def param(p):
    if p.choices:
        return "%s: %s" % (p.help, ", ".join(repr(c) for c in p.choices))
    low = ("above " if p.open_min else "from ") + number(p.min)
    parts = ["even" if p.even else "whole" if p.integer else "", low + " to " + number(p.max),
             "not 0" if p.nonzero else "",
             "at most n" if p.max_n else ""]
    return "%s; %s" % (p.help, ", ".join(part for part in parts if part))


def dims(text):
    """"[..., n, d]", and what its whole numbers are."""
    names, _, bound = text.partition("|")
    shape = "[%s]" % ", ".join(names.split())
    if not bound:
        return shape
    kind, limit = bound.split()
    return "%s, %s %s" % (shape, "offsets from 0 to" if kind == "<=" else "each below", limit)


def port(op, p):
    first = op.inputs[0]
    shape = "any shape; rows run along the axis" if p is first else SHAPES.get(p.shape, "")
    shape = dims(p.dims) if p.dims is not None else shape % first.name if "%s" in shape else shape
    dtype = "bool or uint8" if p.mask else "int32 or int64" if p.integer else ""
    choice = "one of " + " or ".join(q.name for q in op.inputs if q.either) if p.either else ""
    return "; ".join(part for part in (p.help, shape, dtype, choice) if part)


def unknown(function, name, names):
    """What is said of an argument that there is not: what others call so, or what is spelt alike."""
    alike = difflib.get_close_matches(name, list(names), 1, 0.75)
    meant = MEANT.get(name) if MEANT.get(name) in names else alike[0] if alike else None
    return "%s: no argument named '%s'%s" % (function, name, "; here it is '%s'" % meant if meant else "")


def _wrap(text, indent=""):
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False)


def _section(title, items):
    body = "\n".join(textwrap.fill("%s: %s" % item, WIDTH, initial_indent="    ",
                                   subsequent_indent="        ", break_on_hyphens=False)
                     for item in items)
    return title + ":\n" + body


RAISES = [("TypeError",
           "an argument is no array, or has a dtype that it cannot have; an argument is missing or unknown"),
          ("ValueError",
           "a shape, axis or parameter is out of range; buffers overlap; a row has nothing valid and on_empty is 'error'")]


def _closing(op):
    yield _section("Raises", RAISES)
    yield _wrap("Accuracy: f32 results within %g units of 2^-24 of their scale, the same bits everywhere. Logarithms are natural (nats)."
                % op.tolerance)
    yield _wrap("Source: " + op.source + ("" if op.source.endswith(".") else "."))


def result(op, p):
    """What is said of an output. The first one of a loss is what its reduction makes of it."""
    scalar = any(q.shape == SCALAR for q in op.outputs)
    text = port(op, p) + ("; None unless asked for" if p.optional and p.shape != SCALAR else "")
    if scalar and p is op.outputs[0]:
        text += "; with a reduction the value for all rows, and out= takes that of each"
    return text + ("; None without a reduction unless asked for" if p.shape == SCALAR else "")


def forward(op, arguments):
    parts = ["%s." % op.title, _wrap(op.formula, "    "), _wrap(op.about),
             _section("Args", [(a.name, a.help) for a in arguments])]
    parts.append(_section("Returns", [(p.name, result(op, p)) for p in op.outputs]))
    if op.inplace:
        parts.append(_wrap("out may be %s: the operator can work in place." % op.inputs[0].name))
    if op.backward:
        parts.append(_wrap("%s_backward gives gradients." % op.name))
    return "\n\n".join([*parts, *_closing(op)]) + "\n"


def _argument_of_gradient(a):
    return (a.name, "changes nothing here: gradients are of the loss of each row, times what is upstream of it"
            if a.name == "reduction" else a.help)


def backward(op, arguments):
    parts = ["Gradients of %s: %s." % (op.name, op.title), _wrap(op.formula, "    "), _wrap(op.about),
             _section("Args", map(_argument_of_gradient, arguments)),
             _wrap("Returns the gradient of the wanted input, or a tuple of gradients when wanted is a tuple. The gradient of an input that "
                   "was broadcast has the shape it was broadcast to.")]
    return "\n\n".join([*parts, *_closing(op)]) + "\n"
