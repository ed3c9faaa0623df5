"""Loops and branches inside `jax.shard_map`, where types name the axes that arrays vary over."""

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import jaxenvs
from jaxenvs import loops

PACKAGE = Path(jaxenvs.__file__).parent
# These run outside of a user's programs, or their carries vary as they are.
EXCEPTIONS = ("cli/render.py", "faces/bsuite.py", "loops.py", "testing/")
OVER = PartitionSpec("data")

pytestmark = pytest.mark.skipif(jax.device_count() < 4, reason="needs four devices")


def by_while(x):
    return loops.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + x), (0, jnp.float32(0)))


def by_fori(x):
    return loops.fori_loop(0, 3, lambda _, c: c + x, jnp.float32(0))


def by_scan(x):
    return loops.scan(lambda c, y: (c + x + y, c), jnp.float32(0), jnp.zeros(3))


def by_cond(x):
    return loops.cond(x > 2, lambda: jnp.float32(0), lambda: x)


@pytest.mark.parametrize("loop", [by_while, by_fori, by_scan, by_cond])
def test_constants_in_a_loop_vary_as_its_results_do(loop):
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("data", "model"))

    def run(x):
        return jax.tree.map(lambda leaf: jnp.reshape(leaf, (1, -1)), loop(x[0]))

    # Nothing varies over "model", so JAX would refuse results whose types say so.
    program = jax.shard_map(run, mesh=mesh, in_specs=OVER, out_specs=OVER)
    x = jnp.array([1.5, 4.0])
    expected = [jax.device_get(loop(value)) for value in x]
    for leaf, *rows in zip(*map(jax.tree.leaves, (program(x), *expected)), strict=True):
        np.testing.assert_array_equal(leaf, np.stack([np.ravel(row) for row in rows]))


def test_gradient_through_a_loop_in_a_shard_map_is_exact():
    mesh = Mesh(np.array(jax.devices()[:2]), ("data",))

    def loss(weight, x):
        return jnp.sum(loops.scan(lambda c, y: (c + weight * y, None), jnp.float32(0), x)[0])

    def on_device(weight, x):  # JAX sums the gradient over the devices, as `weight` is on each
        return jax.grad(loss)(weight, x)

    specs = {"in_specs": (PartitionSpec(), OVER), "out_specs": PartitionSpec()}
    program = jax.shard_map(on_device, mesh=mesh, **specs)
    assert program(jnp.float32(2), jnp.arange(4.0)) == 6


def test_package_has_no_loops_that_fail_in_a_shard_map():
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        if not str(path.relative_to(PACKAGE)).startswith(EXCEPTIONS)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).startswith(("lax.", "jax.lax."))
        and node.func.attr in ("scan", "while_loop", "fori_loop", "cond", "switch")
    ]
    assert not found, "Use the functions of jaxenvs.loops."


def test_rollout_in_a_shard_map_equals_one_alone():
    batch = jaxenvs.make_vec("CartPole-v1", 2)
    keys = jax.random.split(jax.random.key(0), 2)

    def run(keys):
        result = jaxenvs.rollout(batch, None, 20, keys[0])
        evaluation = jaxenvs.evaluate(batch, None, 1, keys[0])
        rows = result.trajectory.reward, result.statistics, evaluation.episode_length
        return [leaf[None] for leaf in jax.tree.leaves(rows)]

    mesh = Mesh(np.array(jax.devices()[:2]), ("data",))
    apart = jax.jit(jax.shard_map(run, mesh=mesh, in_specs=OVER, out_specs=OVER))(keys)
    alone = [jax.jit(run)(keys[i : i + 1]) for i in range(2)]
    for both, first, second in zip(apart, *alone, strict=True):
        np.testing.assert_allclose(both, np.concatenate([first, second]), rtol=1e-6)
