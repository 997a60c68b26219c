"""Export encoders as ONNX files.

The input of the graph is ``vectors``, float32 (n, n_features), for any n. Its outputs are

- ``values``, float32 (n, n_bits), the decision function;
- ``bits``, uint8 (n, n_bits), 1 where a value is ≥ 0;
- ``codes``, uint8 (n, ceil(n_bits / 8)), the bits packed as in :mod:`hashlearn.codes`.

The graph uses standard operators and computes the same as the library for float32 vectors, in the same order and types.
The runtime determines the order of the terms in a sum and the last digits of exp, tanh and similar functions, so a bit
can differ where its value is 0 within rounding.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from hashlearn.codes import n_bytes, pack
from hashlearn.errors import import_extra
from hashlearn.hashers import Hasher
from hashlearn.hashers.steps import (
    Activation,
    Affine,
    Center,
    Descent,
    Gaussian,
    Margins,
    Scale,
    Spheres,
    Step,
    UnitLength,
)
from hashlearn.storage import atomic_path

FORMAT = "hashlearn encoder"
VERSION = 1
# From 2022; supported by ONNX Runtime since 1.12.
_OPSET, _IR_VERSION = 17, 8
_OPERATORS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu", "cos": "Cos"}


def export_onnx(hasher: Hasher, path: str | os.PathLike[str]) -> None:
    """Write the encoder of a fitted model to an ONNX file atomically. See the module's docstring for the graph.

    The file's ``metadata_props`` have the format and its version, the method, ``n_bits``, ``n_features``, the distance
    by which the codes should be ranked, and the version of hashlearn. Needs the extra ``onnx``.

    Parameters
    ----------
    hasher : Hasher
        A fitted model.
    path : path-like
        The file. An existing one is replaced.

    Raises
    ------
    ValueError
        A value of the model is not finite in float32, or its codes are found by a search (DecoderHash), which a graph
        of standard operators can't follow bit for bit.
    """
    onnx = import_extra("onnx", "onnx")
    check_is_fitted(hasher)
    graph = _Graph(onnx)
    values = "vectors"
    for step in hasher.encoder_steps():
        values = _translate(step, values, graph)
    graph("Identity", values, name="values")
    ones = graph("GreaterOrEqual", "values", np.float32(0))
    graph("Cast", ones, name="bits", to=onnx.TensorProto.UINT8)
    # Byte j is the sum of the powers of 2 of its bits. Those powers are the packed rows of the identity.
    powers = pack(np.eye(hasher.n_bits_, dtype=np.uint8))
    sums = graph("MatMul", graph("Cast", ones, to=onnx.TensorProto.FLOAT), powers.astype(np.float32))
    graph("Cast", sums, name="codes", to=onnx.TensorProto.UINT8)
    model = graph.model(hasher)
    with atomic_path(path) as temporary:
        temporary.write_bytes(model.SerializeToString(deterministic=True))


class _Graph:
    """The nodes and constants of a graph. Calling it adds a node and returns the name of its output."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def __call__(self, operator: str, *inputs: str | ArrayLike, name: str = "", **attributes: Any) -> str:
        """Add a node; ``inputs`` are names of outputs, or constants."""
        name = name or f"{operator.lower()}_{len(self._nodes)}"
        names = [part if isinstance(part, str) else self._constant(part) for part in inputs]
        self._nodes.append(self.onnx.helper.make_node(operator, names, [name], name=name, **attributes))
        return name

    def _constant(self, value: ArrayLike) -> str:
        """Add a constant: floats as float32, integers as int64."""
        array = np.asarray(value)
        if array.dtype.kind == "f":
            with np.errstate(over="ignore"):  # checked below
                array = array.astype(np.float32)
            if not np.isfinite(array).all():
                raise ValueError("the model can't be exported: some of its values are not finite in float32.")
        name = f"constant_{len(self._constants)}"
        self._constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def model(self, hasher: Hasher) -> Any:
        helper, kinds = self.onnx.helper, self.onnx.TensorProto
        L, D = hasher.n_bits_, int(hasher.n_features_in_)

        def array(name: str, kind: Any, width: int) -> Any:
            return helper.make_tensor_value_info(name, kind, ["n", width])

        graph = helper.make_graph(
            self._nodes,
            hasher.name,
            [array("vectors", kinds.FLOAT, D)],
            [
                array("bits", kinds.UINT8, L),
                array("codes", kinds.UINT8, n_bytes(L)),
                array("values", kinds.FLOAT, L),
            ],
            self._constants,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
            producer_name="hashlearn",
            producer_version=version("hashlearn"),
            doc_string=f"Binary codes of {L} bits for vectors of {D} features, by {hasher.name}. bits: 1 where values "
            "are at least 0; codes: bits packed into bytes, most significant first, the last byte filled with zeros.",
        )
        properties = {
            "format": FORMAT,
            "format_version": VERSION,
            "hashlearn": version("hashlearn"),
            "method": hasher.name,
            "n_bits": L,
            "n_features": D,
            "distance": hasher.distance,
        }
        helper.set_model_props(model, {name: str(value) for name, value in properties.items()})
        return model


def _translate(step: Step, Y: str, graph: _Graph) -> str:
    """Add the nodes of one step, applied to the rows ``Y``; return the name of the result."""
    match step:
        case Center(offset):
            return graph("Sub", Y, offset)
        case Affine(W, c):
            product = graph("MatMul", Y, W)
            return product if c is None else graph("Add", product, c)
        case Scale(factors):
            return graph("Mul", Y, factors)
        case Activation(function):
            return graph(_OPERATORS[function], Y)
        case UnitLength():
            Y = _divide(Y, graph("ReduceMax", graph("Abs", Y), axes=[1]), graph)
            return _divide(Y, _squares(Y, graph, root=True), graph)
        case Gaussian(A, c, bandwidth):
            squares = _squares(Y, graph)
            K = graph("Sub", graph("MatMul", Y, A), graph("Div", squares, bandwidth))
            K = graph("Exp", graph("Min", graph("Add", K, c), np.float32(0)))
            return graph("Where", graph("IsInf", squares), np.float32(0), K)
        case Spheres(pivots, thresholds):
            G = graph("Sub", _squares(Y, graph), graph("MatMul", Y, 2 * pivots.T))
            H = graph("Sub", thresholds, G)
            beyond = graph("Or", graph("IsInf", H), graph("IsNaN", H))
            return graph("Where", beyond, np.finfo(np.float32).min, H)
        case Margins(runs, b):
            return _margins(Y, runs, b, graph)
        case Descent():
            raise ValueError("the model can't be exported to ONNX: its encoder searches for each code bit by bit.")


def _squares(Y: str, graph: _Graph, *, root: bool = False) -> str:
    """‖y‖² (n, 1) or its square root: squares in float32, their sum (and root) in float64."""
    kinds = graph.onnx.TensorProto
    total = graph("ReduceSum", graph("Cast", graph("Mul", Y, Y), to=kinds.DOUBLE), [1])
    return graph("Cast", graph("Sqrt", total) if root else total, to=kinds.FLOAT)


def _divide(Y: str, sizes: str, graph: _Graph) -> str:
    """Divide rows by their sizes (n, 1), which are 0 only for rows of zeros."""
    return graph("Div", Y, graph("Where", graph("Greater", sizes, np.float32(0)), sizes, np.float32(1)))


def _margins(Y: str, M: int, b: int, graph: _Graph) -> str:
    """See :class:`~hashlearn.hashers.steps.Margins`; a 0 in the shape of a Reshape keeps the size."""
    k = 1 << b
    remaining = runs = graph("Reshape", Y, [0, M, k])
    margins = []
    for bit in range(b):  # the most significant first
        halves = graph("Reshape", remaining, [0, M, 2, k >> (bit + 1)])
        least = graph("ReduceMin", halves, axes=[3], keepdims=0)
        margins.append(graph("Sub", graph("Gather", least, [0], axis=2), graph("Gather", least, [1], axis=2)))
        remaining = graph("ReduceMin", halves, axes=[2], keepdims=0)
    values = graph("Concat", *margins, axis=2)
    nearest = graph("ArgMin", runs, axis=2, keepdims=0)
    bits = graph("Gather", np.arange(k)[:, None] >> np.arange(b)[::-1] & 1, nearest)
    lost = graph("And", graph("Equal", values, np.float32(0)), graph("Equal", bits, 0))
    values = graph("Where", lost, -np.finfo(np.float32).tiny, values)
    return graph("Flatten", values)
