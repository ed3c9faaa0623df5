"""Compiling what surrounds a step of an environment to few CPU kernels.

XLA runs a CPU program as a sequence of small tasks. Each costs about a microsecond, which is more
than the work of a small environment.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from jaxenvs._cpu.packing import PackedLayout, can_pack

_ATTRIBUTES = {"xla_cpu_small_call": "true", "inlineable": "false"}


class FewKernels:
    """A program that is compiled to as few CPU kernels as possible when it is first called.

    Results may differ from those of `call` in the last bits.

    Args:
        call: a pure function of arrays to uint32[n]. One word follows that depends on all
            arguments: XLA aborts if a kernel does not read an operand.
        whole: `call` in a form that is faster if it is one kernel.
        options: of `jax.jit`.
    """

    def __init__(
        self, call: Callable[..., jax.Array], whole: Callable[..., jax.Array], **options: Any
    ) -> None:
        self._call, self._whole, self._options = call, whole, options
        self._compiled: Callable[..., jax.Array] | None = None

    def __call__(self, *args: Any) -> jax.Array:
        if self._compiled is None:
            self._compiled = self._compile(*args)
        return self._compiled(*args)

    def _compile(self, *args: Any) -> Callable[..., jax.Array]:
        compiled = jax.jit(_in_one_kernel(self._whole), **self._options)
        if not _may_be_one_kernel(compiled.trace(*args).jaxpr.jaxpr):
            compiled = jax.jit(in_kernels(self._call), **self._options)
        try:
            compiled.lower(*args).compile()
        except jax.errors.JaxRuntimeError:
            return jax.jit(lambda *args: jnp.pad(self._call(*args), (0, 1)), **self._options)
        return compiled


def _in_one_kernel(call: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    return _kernel(lambda *args: jnp.append(call(*args), _word_of(jax.tree.leaves(args))))


def in_kernels(call: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Compiles `call` to one CPU kernel before each part that cannot be in one, and one after all.

    Results may differ from those of `call` in the last bits.

    Args:
        call: as of `FewKernels`.
    """

    def compiled(*args: Any) -> jax.Array:
        leaves = jax.tree.leaves(args)
        program = jax.make_jaxpr(partial(_without_calls, jax.make_jaxpr(call)(*args)))(leaves)
        jaxpr, word = program.jaxpr, list[jax.Array]()  # of all operands until here
        values = dict(zip(jaxpr.invars, leaves, strict=True))
        computed = set(jaxpr.invars)  # what XLA cannot compute beforehand
        stages = _stages(jaxpr)
        for i, (equations, is_kernel) in enumerate(stages):
            later = {*jaxpr.outvars, *_all_read(e for rest, _ in stages[i + 1 :] for e in rest)}
            made = [v for e in equations for v in e.outvars if v in later]
            if is_kernel:
                is_last = i + 1 == len(stages)
                wanted = jaxpr.outvars if is_last else made
                read = [v for v in dict.fromkeys([*_all_read(equations), *wanted]) if v in values]
                part = partial(_part, program, equations, wanted, read, is_last)
                *found, last = _kernel(part)([values[v] for v in read], word)
                word = [last]
            else:
                found = _evaluate(program, equations, made, values)
            if is_kernel or not any(_may_fold(e, computed) for e in equations):
                computed.update(made)
            else:
                found = _from_kernel(found, leaves)
            values.update(zip(made, found, strict=False))
        return word[0]

    return compiled


def _part(
    program: ClosedJaxpr,
    equations: list[Any],
    wanted: list[Any],
    read: list[Any],
    is_last: bool,
    operands: list[jax.Array],
    word: list[jax.Array],
) -> list[jax.Array]:
    """Computes what `in_kernels` wants of a kernel, and a word that depends on all operands."""
    found = _evaluate(program, equations, wanted, dict(zip(read, operands, strict=True)))
    last = _word_of([*operands, *word])
    return [jnp.append(found[0], last)] if is_last else [*found, last]


def _from_kernel(values: list[jax.Array], leaves: list[Any]) -> list[jax.Array]:
    """Returns the same values from a kernel that reads them, and a word of `leaves`, as one array.

    XLA aborts if an operand of a kernel is a constant, as the result of a loop may be. It copies
    those of up to 2,000 elements into the kernel.
    """
    large = [i for i, value in enumerate(values) if value.size > 256 and can_pack(value)]
    if not large:
        return values
    layout = PackedLayout([values[i] for i in large])
    with jax.enable_x64(True):
        packed = jnp.append(layout.pack([values[i] for i in large]), _word_of(leaves))
        found = dict(zip(large, _kernel(layout.unpack)(packed), strict=True))
    return [found.get(i, value) for i, value in enumerate(values)]


def _evaluate(
    program: ClosedJaxpr, equations: list[Any], wanted: list[Any], values: dict[Any, Any]
) -> list[Any]:
    jaxpr, read = program.jaxpr, dict.fromkeys([*_all_read(equations), *wanted])  # in order
    constants = dict(zip(jaxpr.constvars, program.consts, strict=True))
    own, operands = [v for v in read if v in constants], [v for v in read if v in values]
    part = jaxpr.replace(
        constvars=own,
        invars=operands,
        outvars=wanted,
        eqns=equations,
        debug_info=jaxpr.debug_info.with_unknown_names(),
    )
    function = jaxpr_as_fun(ClosedJaxpr(part, [constants[v] for v in own]))
    return function(*(values[v] for v in operands))


def _without_calls(program: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
    """Evaluates `program` with what it calls in place of calls that cannot be in a kernel.

    Most of what they consist of can be in one.
    """
    jaxpr = program.jaxpr
    values = dict(zip(jaxpr.invars, args, strict=True))
    constants = dict(zip(jaxpr.constvars, program.consts, strict=True))

    def value_of(variable: Any) -> Any:
        if isinstance(variable, Literal):
            return variable.val
        return values[variable] if variable in values else constants[variable]

    for equation in jaxpr.eqns:
        if equation.primitive.name in _CALLS and not _may_be_in_kernel(equation):
            params = jax.tree.leaves(list(equation.params.values()))
            [called] = [param for param in params if isinstance(param, ClosedJaxpr)]
            found = _without_calls(called, list(map(value_of, equation.invars)))
        else:
            found = _evaluate(program, [equation], equation.outvars, values)
        values.update(zip(equation.outvars, found, strict=True))
    return list(map(value_of, jaxpr.outvars))


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


def _word_of(arrays: Sequence[Any]) -> jax.Array:
    """Returns uint32[] that depends on all arrays."""
    data = [
        jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        for x in arrays
    ]
    return sum((x.reshape(-1)[0].astype(jnp.uint32) for x in data if x.size), jnp.uint32(0))


def _stages(jaxpr: Any) -> list[tuple[list[Any], bool]]:
    """Returns groups of equations in an order to run them, and whether each is a kernel.

    The last one is.
    """
    needed, equations = set(jaxpr.outvars), []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or needed.intersection(equation.outvars):
            needed.update(_all_read([equation]))
            equations.append(equation)
    stage_of: dict[Any, int] = {}
    stages: dict[int, list[Any]] = {}
    for equation in reversed(equations):
        # Even stages are kernels, and odd ones what cannot be in one.
        stage = max((stage_of.get(v, 0) for v in _all_read([equation])), default=0)
        if _may_be_in_kernel(equation):
            stage += stage % 2
        else:
            stage += 1 + stage % 2
        stage_of.update(dict.fromkeys(equation.outvars, stage))
        stages.setdefault(stage, []).append(equation)
    found = [(stages[stage], stage % 2 == 0) for stage in sorted(stages)]
    return found if found and found[-1][1] else [*found, ([], True)]


def _all_read(equations: Iterable[Any]) -> list[Any]:
    return [v for e in equations for v in e.invars if not isinstance(v, Literal)]


# XLA has these as calls of other libraries. It looks for them only after it has compiled all, which
# may take half a minute, and aborts at some convolutions.
_NOT_IN_KERNELS = re.compile(
    "sort|top_k|approx_top_k|conv_general_dilated|fft|cholesky|triangular_solve|lu|qr|svd|eigh?|schur"
    "|householder_product|tridiagonal.*|(pure|io|debug|buffer)_callback|debug_print|ffi_call|custom_call"
)

_CALLS = ("jit", "custom_jvp_call", "custom_vmap_call", "custom_partitioning")


def _may_be_one_kernel(jaxpr: Any) -> bool:
    """Returns whether XLA may compile a program to one kernel."""
    return all(map(_may_be_in_kernel, jaxpr.eqns))


def _may_be_in_kernel(equation: Any) -> bool:
    if _NOT_IN_KERNELS.fullmatch(equation.primitive.name):
        return False
    return all(map(_may_be_one_kernel, _inner_jaxprs(equation)))


def _may_fold(equation: Any, computed: set[Any]) -> bool:
    """Returns whether XLA may find that a result outside of kernels is a constant."""
    return bool(_inner_jaxprs(equation)) or computed.isdisjoint(_all_read([equation]))


def _inner_jaxprs(equation: Any) -> list[Any]:
    inner = [getattr(v, "jaxpr", v) for v in jax.tree.leaves(list(equation.params.values()))]
    return [jaxpr for jaxpr in inner if hasattr(jaxpr, "eqns")]
