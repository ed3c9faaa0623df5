"""Policies as Python modules that need only NumPy, translated from their jaxprs."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import export

from jaxenvs.errors import TrainingError

# Expressions for primitives whose results depend on nothing but their operands.
_EXPRESSIONS = {
    "abs": "np.abs({})",
    "add": "({} + {})",
    "and": "({} & {})",
    "clamp": "np.clip({1}, {0}, {2})",
    "copy": "{}",
    "cos": "np.cos({})",
    "div": "({} / {})",
    "eq": "({} == {})",
    "exp": "np.exp({})",
    "expm1": "np.expm1({})",
    "ge": "({} >= {})",
    "gt": "({} > {})",
    "le": "({} <= {})",
    "log": "np.log({})",
    "log1p": "np.log1p({})",
    "logistic": "(0.5 + 0.5 * np.tanh(0.5 * {}))",
    "lt": "({} < {})",
    "max": "np.maximum({}, {})",
    "min": "np.minimum({}, {})",
    "mul": "({} * {})",
    "ne": "({} != {})",
    "neg": "(-{})",
    "not": "(~{})",
    "or": "({} | {})",
    "pow": "({} ** {})",
    "rsqrt": "(1 / np.sqrt({}))",
    "select_n": "np.where({0}, {2}, {1})",
    "sign": "np.sign({})",
    "sin": "np.sin({})",
    "sqrt": "np.sqrt({})",
    "square": "np.square({})",
    "stop_gradient": "{}",
    "sub": "({} - {})",
    "tanh": "np.tanh({})",
}

_MODULE = '''\
"""The greedy policy of a trained actor, written by jaxenvs. Needs only NumPy.

{usage}
Takes one observation, or N of them stacked along a first axis.
"""

import base64
import io

import numpy as np


def convolve(x, kernel, strides, pads):
    x = np.pad(x, ((0, 0), *pads, (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[:2], (1, 2))
    windows = windows[:, :: strides[0], :: strides[1]]
    return np.tensordot(windows, kernel, ((4, 5, 3), (0, 1, 2)))


def policy({arguments}):
{body}

_WEIGHTS = """
{weights}
"""
with np.load(io.BytesIO(base64.b64decode(_WEIGHTS))) as _file:
    weights = dict(_file)
'''


def write_module(act: Callable[..., Any], observation: Any, carry: Any) -> str:
    """Returns the text of a Python module with a function `policy` that does what `act` does.

    Args:
        act: (carry, observation) -> (carry, action) for N instances.
        observation: shapes and dtypes for one instance, with a leading axis of size 1.
        carry: the carry of one instance at the start of an episode, or () without a memory.

    Raises:
        TrainingError: `act` has an operation without a translation.
    """
    (n,) = export.symbolic_shape("N")

    def many(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((n, *x.shape[1:]), x.dtype)

    like = jax.tree.map(many, (carry, observation))
    closed, (_, _) = jax.make_jaxpr(act, return_shape=True)(*like)
    writer = _Writer()
    start = [writer.constant(np.asarray(x)) for x in jax.tree.leaves(carry)]
    seen, _ = jax.tree_util.tree_flatten_with_path(like[1])
    names = [f"x{i}" for i in range(len(seen))]
    for name, (path, leaf) in zip(names, seen, strict=True):
        entry = f"observation{jax.tree_util.keystr(path)}"
        writer.line(f"{name} = np.asarray({entry}, '{leaf.dtype}')")
    writer.line(f"is_single = {names[0]}.ndim == {len(seen[0][1].shape) - 1}")
    for name, (_, leaf) in zip(names, seen, strict=True):
        writer.line(f"{name} = {name}.reshape({_tuple((-1, *leaf.shape[1:]))})")
    writer.line(f"N = len({names[0]})")
    memory = [f"carry[{i}]" for i in range(len(start))]
    if start:
        repeated = ", ".join(f"np.repeat({name}, N, 0)" for name in start)
        writer.line(f"carry = [{repeated}] if carry is None else carry")
    *after, action = writer.run(closed.jaxpr, closed.consts, [*memory, *names])
    writer.line(f"action = {action}[0] if is_single else {action}")
    writer.line(f"return [{', '.join(after)}], action" if start else "return action")
    usage = "    carry, action = policy(carry, observation)  # carry is None at the start\n"
    return _MODULE.format(
        usage=usage if start else "    action = policy(observation)\n",
        arguments="carry, observation" if start else "observation",
        body="\n".join(f"    {line}" for line in writer.lines) + "\n",
        weights=writer.weights(),
    )


def run_module(text: str) -> Callable[..., Any]:
    """Returns the function `policy` of a module's text."""
    module: dict[str, Any] = {}
    exec(text, module)
    return module["policy"]


class _Writer:
    """Translates the equations of a jaxpr to lines of Python."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._arrays: dict[str, np.ndarray] = {}
        self._count = 0

    def line(self, text: str) -> None:
        self.lines.append(text)

    def constant(self, value: np.ndarray) -> str:
        """Returns the name of an array that the module contains."""
        name = f"w{len(self._arrays)}"
        self._arrays[name] = value
        return f"weights['{name}']"

    def weights(self) -> str:
        """Returns the arrays as lines of base 64."""
        file = io.BytesIO()
        np.savez_compressed(file, **self._arrays)  # pyright: ignore[reportArgumentType]
        return base64.encodebytes(file.getvalue()).decode().strip()

    def run(self, jaxpr: Any, consts: Sequence[Any], operands: Sequence[str]) -> list[str]:
        """Writes the equations. Returns the names of the results."""
        names: dict[Any, str] = dict(zip(jaxpr.invars, operands, strict=True))
        for var, value in zip(jaxpr.constvars, consts, strict=True):
            names[var] = self.constant(np.asarray(value))

        def name_of(atom: Any) -> str:
            if not hasattr(atom, "val"):
                return names[atom]
            value = np.asarray(atom.val)
            if value.ndim or not np.isfinite(value):
                return self.constant(value)
            return f"np.dtype('{atom.aval.dtype}').type({value.item()!r})"

        for equation in jaxpr.eqns:
            inputs = [name_of(atom) for atom in equation.invars]
            inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
            if inner is not None:
                closed = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
                names |= zip(equation.outvars, self.run(*closed, inputs), strict=True)
                continue
            (result,) = equation.outvars
            avals = [atom.aval for atom in equation.invars]
            text = _expression(equation.primitive.name, equation.params, avals, result.aval)
            names[result] = f"v{self._count}"
            self._count += 1
            self.line(f"{names[result]} = {text.format(*inputs)}")
        return [name_of(atom) for atom in jaxpr.outvars]


def _expression(name: str, params: Mapping[str, Any], operands: list[Any], result: Any) -> str:
    """Returns Python for a primitive, with {0}, {1} ... for its operands."""
    shape, places = _tuple(result.shape), ", ".join(["{}"] * len(operands))
    if result.dtype.kind == "V" or (name == "div" and result.dtype.kind != "f"):
        name = f"{name} of {result.dtype}"  # NumPy has no bfloat16, and another integer division
    if name in _EXPRESSIONS:
        return _EXPRESSIONS[name]
    match name:
        case "argmax":
            return f"np.argmax({{}}, {params['axes'][0]}).astype('{result.dtype}')"
        case "broadcast_in_dim":
            placed: list[Any] = [1] * len(result.shape)
            for axis, size in zip(params["broadcast_dimensions"], operands[0].shape, strict=True):
                placed[axis] = size
            return f"np.broadcast_to({{}}.reshape({_tuple(placed)}), {shape})"
        case "concatenate":
            return f"np.concatenate([{places}], {params['dimension']})"
        case "conv_general_dilated" if _is_plain_convolution(params):
            return f"convolve({{}}, {{}}, {params['window_strides']}, {params['padding']})"
        case "convert_element_type":
            return f"{{}}.astype('{result.dtype}')"
        case "dot_general" if not any(params["dimension_numbers"][1]):
            left, right = params["dimension_numbers"][0]
            return f"np.tensordot({{}}, {{}}, ({_tuple(left)}, {_tuple(right)}))"
        case "integer_pow":
            return f"({{}} ** {params['y']})"
        case "iota":
            sizes = [1] * len(result.shape)
            sizes[params["dimension"]] = -1
            numbers = f"np.arange({result.shape[params['dimension']]}, dtype='{result.dtype}')"
            return f"np.broadcast_to({numbers}.reshape({_tuple(sizes)}), {shape})"
        case "pad" if all(min(*pad) >= 0 == pad[2] for pad in params["padding_config"]):
            pads = _tuple([pad[:2] for pad in params["padding_config"]])
            return f"np.pad({{}}, {pads}, constant_values={{}})"
        case "reduce_and" | "reduce_max" | "reduce_min" | "reduce_or" | "reduce_sum":
            call = {"and": "all", "or": "any"}.get(name[7:], name[7:])
            return f"np.{call}({{}}, {_tuple(params['axes'])}).astype('{result.dtype}')"
        case "expand_dims" | "reshape" | "squeeze":
            return f"{{}}.reshape({shape})"
        case "slice":
            steps = params["strides"] or (1,) * len(result.shape)
            parts = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
            return f"{{}}[{', '.join(f'{start}:{stop}:{step}' for start, stop, step in parts)}]"
        case "stack":
            return f"np.stack([{places}], {params['axis']})"
        case "transpose":
            return f"{{}}.transpose({_tuple(params['permutation'])})"
    raise TrainingError(
        f"to_numpy got an actor with the operation {name}, which has no translation to NumPy."
        "  Export the policy with jax.export instead."
    )


def _is_plain_convolution(params: Mapping[str, Any]) -> bool:
    """Whether images and kernels are NHWC and HWIO, without dilation and groups."""
    numbers = params["dimension_numbers"]
    return (
        (numbers.lhs_spec, numbers.rhs_spec) == ((0, 3, 1, 2), (3, 2, 0, 1))
        and numbers.out_spec == numbers.lhs_spec
        and {*params["lhs_dilation"], *params["rhs_dilation"]} == {1}
        and params["feature_group_count"] == params["batch_group_count"] == 1
    )


def _tuple(sizes: Sequence[Any]) -> str:
    """Returns Python for a tuple, in which a symbolic size is a formula of N."""
    return f"({', '.join(map(str, sizes))}{',' * (len(sizes) == 1)})"
