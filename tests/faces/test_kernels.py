"""Programs that run in few kernels around what cannot be in one.

XLA aborts the process at some operands of a kernel, so a fault here is a crash.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import prng
from jaxenvs._cpu.kernels import in_kernels
from jaxenvs._cpu.packing import PackedLayout


def check(call, *given):
    """Compares what `call` returns with and without kernels, and returns how many there are."""
    layout = PackedLayout(jax.eval_shape(call, *given))
    program = jax.jit(in_kernels(lambda *args: layout.pack(call(*args))))
    found, expected = jax.jit(layout.unpack)(program(*given)), jax.jit(call)(*given)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    return program.lower(*given).as_text().count("call @kernel")


def test_sorts_stand_between_kernels():
    def call(x, key):
        noise = jax.random.normal(key, x.shape)
        rank = jnp.sort(x + noise)
        total = jnp.cumsum(jnp.sort(rank * x) ** 2)
        return {"total": total, "same": x, "one": 1.0, "noise": noise, "unused": None}

    given = jnp.arange(8.0)[::-1], jax.random.key(3)
    assert check(call, *given) == 3  # before, between, and after the sorts


def test_kernels_stand_around_foreign_calls_of_a_step():
    envs = jaxenvs.make_vec("InvertedPendulum-v5", 2, time_limit=2)
    state, _ = jax.jit(envs.reset)(jax.random.key(0))
    action = np.ones((2, 1), np.float32)
    for i in range(5):
        assert check(envs.step, state, action, jax.random.key(i)) == 3
        state, _ = jax.jit(envs.step)(state, action, jax.random.key(i))


def test_constants_are_inside_the_kernels_that_read_them():
    table = jnp.arange(3_000.0).reshape(-1, 3)

    def call(x, i):
        return jnp.sort(x * table[i]) + table[i + 1], table[0]

    check(call, jnp.array([1.0, -1.0, 2.0]), jnp.int32(2))


TABLE = np.linspace(1, 2, 5_000, dtype=np.float32)  # XLA copies small constants into kernels


def loop_of_sorts(x):
    carry = x, jnp.asarray(TABLE)
    x, table = jax.lax.fori_loop(0, 3, lambda _, c: (jnp.sort(c[0]) * 0.9, c[1]), carry)
    return x + table[-1] * table[2]


def sort_or_not(x):
    sort, same = (lambda x: (jnp.sort(x), TABLE)), (lambda x: (x, TABLE))
    x, table = jax.lax.cond(x[0] > 0, sort, same, x)
    return x * table[-1] * table[2]


def fast_key(x):
    return prng.as_fast_key(jax.random.key(jnp.int32(x[0])))


CONSTANT_OPERANDS = {
    "made before a sort": lambda x: jnp.asarray(TABLE)[2:5] * (jnp.sort(x) + 1),
    "found by XLA before a sort": lambda x: (
        jnp.sort(x) + 1,
        (x > 2) & False,
        jnp.int32(x) * 0 + 1,
    ),
    "beside a sort in a call": lambda x: jax.jit(lambda x: (jnp.sort(x), TABLE))(x)[1][3] + x,
    "carried by a loop of sorts": loop_of_sorts,
    "chosen with a sort": sort_or_not,
    "sorted": lambda x: x + jnp.sort(TABLE)[-2],
    "sorted twice": lambda x: x + jnp.sort(-jnp.sort(TABLE))[2],
    "sorted within sorts": lambda x: x + jnp.sort(jnp.sort(TABLE[:, None], 0), 1)[-1],
    "of no element": lambda x: jnp.append(jnp.sort(x), jnp.sort(x[:0]) + 1),
    "of a key": lambda x: jnp.sort(x) + jax.random.normal(jax.random.key(3), 3),
    "of a fast key": lambda x: jnp.sort(x) + jax.random.normal(fast_key(x), 3),
    "complex": lambda x: jnp.sort(x) + jax.lax.complex(x, x * 2).imag,
    "of a short float": lambda x: jnp.sort(x) + (x.astype(jnp.bfloat16) * 0).astype(jnp.float32),
}


@pytest.mark.parametrize("call", CONSTANT_OPERANDS.values(), ids=CONSTANT_OPERANDS)
def test_no_operand_of_a_kernel_is_a_constant(call):
    check(call, jnp.array([3.0, 1.0, 2.0]))


def test_a_print_after_the_result_is_no_operand(capfd):
    def call(x):
        y = jnp.sort(x)
        jax.debug.print("{}", jnp.sort(y * 2) + 1)
        return y * 3

    check(call, jnp.array([3.0, 1.0, 2.0]))
    jax.effects_barrier()
    assert "[3. 5. 7.]" in capfd.readouterr().out


@pytest.mark.parametrize("place", [0, 1])
def test_kernels_read_all_of_their_operands(place):
    def call(x, y):
        return jnp.sort((x, y)[place]) + jnp.where(False, (y, x)[place], 1.0)

    check(call, jnp.array([3.0, 1.0]), jnp.array([2.0, 1.0]))
