"""Compiling what surrounds a step of an environment to few CPU kernels.

XLA runs a CPU program as a sequence of small tasks. Each costs about a microsecond, which is more
than the work of a small environment.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from jaxenvs.vector.vectorize import VectorizedEnv

_ATTRIBUTES = {"xla_cpu_small_call": "true", "inlineable": "false"}


def in_one_kernel(call: Callable[..., Any], env: Any) -> Callable[..., Any]:
    """Compiles `call(env, *args)` to a single CPU kernel and returns it as a function of `args`.

    If XLA cannot compile `call` to one kernel, the returned function raises
    `jax.errors.JaxRuntimeError`, see `may_be_one_kernel`. Results may differ from those of `call`
    in the last bits. XLA aborts if `call` does not read all of its arrays.

    Args:
        call: a pure function of a tree that contains `VectorizedEnv`s, and of arrays.
        env: the tree.
    """
    env = jax.tree.map(
        lambda node: (
            dataclasses.replace(node, one_kernel=True) if isinstance(node, VectorizedEnv) else node
        ),
        env,
        is_leaf=lambda node: isinstance(node, VectorizedEnv),
    )
    return _kernel(lambda *args: call(env, *args))


def in_kernels(call: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles `call` to one CPU kernel before each part that cannot be in one, and one after all.

    Results may differ from those of `call` in the last bits.
    """

    def compiled(*args: Any) -> Any:
        closed, shapes = jax.make_jaxpr(call, return_shape=True)(*args)
        jaxpr, values = closed.jaxpr, dict[Any, Any]()
        # XLA aborts if an operand of a kernel is a constant.
        constants = dict(zip(jaxpr.constvars, closed.consts, strict=True))
        values.update(zip(jaxpr.invars, jax.tree.leaves(args), strict=True))
        stages = _stages(jaxpr)
        for i, (equations, is_kernel) in enumerate(stages):
            later = {v for rest, _ in stages[i + 1 :] for e in rest for v in _read(e.invars)}
            later |= set(_read(jaxpr.outvars))
            made = [v for e in equations for v in e.outvars if v in later]
            read = {v: None for e in equations for v in _read(e.invars)}  # a set with an order
            given = [v for v in read if v in values]
            own = [v for v in read if v in constants]
            part = jaxpr.replace(
                constvars=own,
                invars=given,
                outvars=made,
                eqns=equations,
                debug_info=jaxpr.debug_info.with_unknown_names(),
            )
            function = jaxpr_as_fun(ClosedJaxpr(part, [constants[v] for v in own]))
            if is_kernel:
                function = _kernel(_reads_all(function))
            values.update(zip(made, function(*(values[v] for v in given)), strict=False))
        found = [v.val if isinstance(v, Literal) else values[v] for v in jaxpr.outvars]
        return jax.tree.unflatten(jax.tree.structure(shapes), found)

    return compiled


def _kernel(call: Callable[..., Any]) -> Callable[..., Any]:
    @jax.jit
    def kernel(*args: Any) -> Any:
        # Nested calls, such as those of `jnp.where`, must not become kernels of their own.
        with set_xla_metadata(**dict.fromkeys(_ATTRIBUTES)):
            return call(*args)

    def compiled(*args: Any) -> Any:
        with set_xla_metadata(**_ATTRIBUTES):
            return kernel(*args)

    return compiled


def _reads_all(call: Callable[..., Sequence[Any]]) -> Callable[..., list[Any]]:
    """Returns `call` with a last result that depends on all arguments: XLA aborts without."""

    def reading(*args: Any) -> list[Any]:
        words = [
            (jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
            .reshape(-1)[:1]
            .astype(jnp.uint32)
            for x in args
        ]
        return [*call(*args), jnp.concatenate(words)]

    return reading


def _stages(jaxpr: Any) -> list[tuple[list[Any], bool]]:
    """Returns groups of equations in an order to run them, and whether each may be a kernel."""
    needed, equations = set(_read(jaxpr.outvars)), []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or needed.intersection(equation.outvars):
            needed.update(_read(equation.invars))
            equations.append(equation)
    stage_of: dict[Any, int] = {}
    stages: dict[int, list[Any]] = {}
    for equation in reversed(equations):
        # Even stages are kernels, and odd ones what cannot be in one.
        stage = max((stage_of.get(v, 0) for v in _read(equation.invars)), default=0)
        if _may_be_in_kernel(equation):
            stage += stage % 2
        else:
            stage += 1 + stage % 2
        stage_of.update(dict.fromkeys(equation.outvars, stage))
        stages.setdefault(stage, []).append(equation)
    return [(stages[stage], stage % 2 == 0) for stage in sorted(stages)]


def _read(variables: Iterable[Any]) -> list[Any]:
    return [v for v in variables if not isinstance(v, Literal)]


# XLA has these as calls of other libraries. It looks for them only after it has compiled all, which
# may take half a minute, and aborts at some convolutions.
_NOT_IN_KERNELS = re.compile(
    "sort|top_k|approx_top_k|conv_general_dilated|fft|cholesky|triangular_solve|lu|qr|svd|eigh?|schur"
    "|householder_product|tridiagonal.*|(pure|io|debug|buffer)_callback|debug_print|ffi_call|custom_call"
)


def may_be_one_kernel(jaxpr: Any) -> bool:
    """Returns whether XLA may compile a program to one kernel, for `in_one_kernel`."""
    return all(map(_may_be_in_kernel, jaxpr.eqns))


def _may_be_in_kernel(equation: Any) -> bool:
    if _NOT_IN_KERNELS.fullmatch(equation.primitive.name):
        return False
    for value in jax.tree.leaves(list(equation.params.values())):
        inner = getattr(value, "jaxpr", value)
        if hasattr(inner, "eqns") and not may_be_one_kernel(inner):
            return False
    return True
