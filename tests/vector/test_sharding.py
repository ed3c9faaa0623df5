"""Instances on several devices: the same steps as on one device, without communication."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxenvs
from jaxenvs.errors import ShardingError, VectorizeError
from jaxenvs.testing.dummy import CountingEnv
from tests.ids import case, every_nth
from tests.rounding import assert_agree

N, T = 32, 60
KEY_SEED = 5

# One id of each family whose programs have loops; certificates and other tests run all.
LOOPING = ("FrozenLake-v1", "LunarLander-v3", "BabyAI-GoToLocalS5N2-v0", "InvertedPendulum-v5")

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="needs eight devices")


@functools.cache
def make(name):
    return CountingEnv(has_key=True) if name == "CountingEnv" else jaxenvs.make(name, time_limit=9)


@functools.cache
def actions_for(name, num_envs=N):
    generator = np.random.default_rng(0)
    if name == "Pendulum-v1":
        return generator.uniform(-2, 2, (T, num_envs, 1)).astype(np.float32)
    return generator.integers(0, 2, (T, num_envs), np.int32)


def play(vector_env, key, actions):
    """Scans steps and returns the timesteps including the reset, [T + 1, N, ...]."""

    def step(state, xs):
        number, action = xs
        return vector_env.step(state, action, jax.random.fold_in(key, number))

    state, first = vector_env.reset(key)
    numbers = jnp.arange(len(actions), dtype=jnp.int32)
    _, timesteps = jax.lax.scan(step, state, (numbers, actions))
    return first, timesteps


@functools.cache
def on_one_device(name, mode="same_step"):
    vector_env = jaxenvs.vectorize(make(name), N, autoreset_mode=mode)
    return jax.jit(functools.partial(play, vector_env))(key(), actions_for(name))


def key():
    return jax.random.key(KEY_SEED)


def mesh_of(*shape, names=("env",), explicit=False, devices=None):
    kind = AxisType.Explicit if explicit else AxisType.Auto
    count = int(np.prod(shape))
    return jax.make_mesh(
        shape, names, axis_types=(kind,) * len(shape), devices=(devices or jax.devices())[:count]
    )


MESHES = {
    "8 devices": lambda: (mesh_of(8), None),
    "4 devices": lambda: (mesh_of(4), None),
    "second of two axes": lambda: (mesh_of(2, 4, names=("model", "env")), "env"),
    "8 devices, explicit": lambda: (mesh_of(8, explicit=True), None),
}


@pytest.mark.parametrize(
    ("name", "mode", "mesh"),
    [
        case("CartPole-v1", "same_step", "8 devices", is_quick=True),
        case("CartPole-v1", "same_step", "4 devices", is_quick=False),
        case("CartPole-v1", "next_step", "8 devices", is_quick=True),
        case("CartPole-v1", "disabled", "8 devices", is_quick=True),
        case("CartPole-v1", "same_step", "8 devices, explicit", is_quick=False),
        case("Pendulum-v1", "same_step", "8 devices", is_quick=False),
        case("Pendulum-v1", "same_step", "second of two axes", is_quick=False),
        case("CartPole-v1", "same_step", "second of two axes", is_quick=True),
        case("CountingEnv", "same_step", "4 devices", is_quick=True),
        case("CountingEnv", "same_step", "8 devices, explicit", is_quick=True),
    ],
)
def test_mesh_matches_one_device(name, mode, mesh):
    mesh, axis = MESHES[mesh]()
    vector_env = jaxenvs.vectorize(make(name), N, autoreset_mode=mode, mesh=mesh, mesh_axis=axis)
    with jax.set_mesh(mesh):
        first, timesteps = jax.jit(functools.partial(play, vector_env))(key(), actions_for(name))
    assert_agree((first, timesteps), on_one_device(name, mode))
    # The results stay sharded: instances over the axis, time not at all.
    size = mesh.shape[axis or mesh.axis_names[0]]
    assert first.reward.sharding.shard_shape((N,)) == (N // size,)


def test_one_instance_per_device_matches_one_device():
    actions = actions_for("CartPole-v1", 8)
    runs = [
        jax.jit(functools.partial(play, jaxenvs.vectorize(make("CartPole-v1"), 8, mesh=mesh)))
        for mesh in (None, mesh_of(8))
    ]
    alone, spread = (run(key(), actions) for run in runs)
    assert_agree(spread, alone)


def play_with_keys(vector_env, keys, actions):
    """As `play`, with one key per instance; returns the last state, too."""

    def step(state, xs):
        number, action = xs
        return vector_env.step(state, action, jax.vmap(jax.random.fold_in, (0, None))(keys, number))

    state, first = vector_env.reset(keys)
    numbers = jnp.arange(len(actions), dtype=jnp.int32)
    return first, *jax.lax.scan(step, state, (numbers, actions))


@pytest.mark.parametrize(
    ("mode", "devices", "check_vma"),
    [
        case("same_step", 8, True, is_quick=True),
        case("same_step", 2, False, is_quick=False),
        case("next_step", 2, True, is_quick=True),
        case("next_step", 8, False, is_quick=False),
        case("disabled", 2, True, is_quick=True),
        case("disabled", 8, False, is_quick=False),
    ],
)
def test_users_shard_map_matches_one_device(mode, devices, check_vma):
    env, actions = make("CartPole-v1"), actions_for("CartPole-v1")
    keys = jax.random.split(key(), N)
    whole = jaxenvs.vectorize(env, N, autoreset_mode=mode)
    part = jaxenvs.vectorize(env, N // devices, autoreset_mode=mode)
    instances, times = PartitionSpec("env"), PartitionSpec(None, "env")
    spread = jax.shard_map(
        functools.partial(play_with_keys, part),
        mesh=mesh_of(devices),
        in_specs=(instances, times),
        out_specs=(instances, instances, times),
        check_vma=check_vma,
    )
    alone = functools.partial(play_with_keys, whole)
    apart, together = (jax.jit(run)(keys, actions) for run in (spread, alone))
    assert_agree(apart, together)


@pytest.mark.parametrize("name", every_nth(2, LOOPING))
def test_single_environments_scan_in_a_users_shard_map(name):
    env = jaxenvs.make(name)

    def play_alone(keys):
        def step(carry, _):
            return jax.vmap(env.step)(carry[0], jax.vmap(env.action_space.sample)(keys), keys), None

        return jax.lax.scan(step, jax.vmap(env.reset)(keys), None, 2)[0][1]

    over = PartitionSpec("env")
    for devices in (4, 2):  # arrays that are cached must not belong to the first mesh
        run = jax.shard_map(play_alone, mesh=mesh_of(devices), in_specs=over, out_specs=over)
        assert jax.eval_shape(run, jax.random.split(key(), 4)).reward.shape == (4,)


@pytest.mark.parametrize("name", every_nth(2, ["CartPole-v1", "Pendulum-v1"]))
def test_jit_with_input_shardings_matches_one_device(name):
    vector_env = jaxenvs.vectorize(make(name), N)
    sharding = NamedSharding(mesh_of(8), PartitionSpec("env"))
    state, first = jax.jit(vector_env.reset)(key())
    state = jax.device_put(state, sharding)

    @functools.partial(jax.jit, in_shardings=(sharding, sharding, None))
    def step(state, actions, number):
        def body(state, action):
            step_key = jax.random.fold_in(key(), number)
            return vector_env.step(state, action, step_key)

        return body(state, actions)

    expected = jax.device_get(on_one_device(name)[1])
    for number, action in enumerate(actions_for(name)[:20]):
        state, timestep = step(state, jax.device_put(action, sharding), jnp.int32(number))
        assert_agree(timestep, jax.tree.map(lambda leaf, n=number: leaf[n], expected))
    assert_agree(first, on_one_device(name)[0])


@pytest.mark.skipif(not hasattr(jax, "pmap"), reason="this jax has no pmap")
@pytest.mark.parametrize("name", every_nth(2, ["CartPole-v1", "Pendulum-v1"], first=1))
def test_pmap_of_one_environment_matches_one_device(name):
    env, num_devices = make(name), 8
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key(), jnp.arange(num_devices))
    actions = actions_for(name)[0, :num_devices]
    state, first = jax.pmap(env.reset)(keys)
    apart = jax.device_get((first, jax.pmap(env.step)(state, actions, keys)))
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    for i in range(num_devices):
        state, first = reset(keys[i])
        alone = first, step(state, actions[i], keys[i])
        one = jax.tree.map(lambda leaf, i=i: leaf[i], apart)
        assert_agree(one, jax.device_get(alone))


@pytest.mark.skipif(not hasattr(jax, "pmap"), reason="this jax has no pmap")
@pytest.mark.parametrize("name", every_nth(2, ["CartPole-v1", "Pendulum-v1"]))
def test_pmap_of_a_batch_matches_one_device(name):
    num_devices = 8
    vector_env = jaxenvs.vectorize(make(name), N // num_devices)
    keys = jax.random.split(key(), num_devices)
    actions = np.stack(np.split(actions_for(name), num_devices, axis=1))
    run = functools.partial(play, vector_env)
    apart, alone = jax.device_get(jax.pmap(run)(keys, actions)), jax.jit(run)
    for i in range(num_devices):
        part = jax.tree.map(lambda leaf, i=i: leaf[i], apart)
        assert_agree(part, jax.device_get(alone(keys[i], actions[i])))


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_devices_do_not_communicate(mode):
    mesh = mesh_of(8)
    vector_env = jaxenvs.vectorize(make("CartPole-v1"), N, autoreset_mode=mode, mesh=mesh)
    arguments = (
        *(jax.eval_shape(vector_env.reset, key())[:1]),
        jax.ShapeDtypeStruct((N,), jnp.int32),
    )
    sharding = NamedSharding(mesh, PartitionSpec("env"))
    arguments = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), arguments
    )
    replicated = jax.device_put(key(), NamedSharding(mesh, PartitionSpec()))
    text = jax.jit(vector_env.step).lower(*arguments, replicated).compile().as_text()
    assert f"[{N // 8}]" in text, "the program works on the instances of one device"
    assert not re.findall(r"all-reduce|all-gather|all-to-all|collective-|reduce-scatter", text)


@pytest.mark.parametrize("explicit", [False, True], ids=["auto", "explicit"])
def test_batched_parameters_are_sharded_with_their_instances(explicit):
    env = make("CartPole-v1").replace(gravity=np.linspace(1, 20, N, dtype=np.float32))
    mesh = mesh_of(8, explicit=explicit)
    runs = [jaxenvs.vectorize(env, N, batched="gravity", mesh=where) for where in (None, mesh)]
    alone, spread = (
        jax.jit(functools.partial(play, run))(key(), actions_for("CartPole-v1")) for run in runs
    )
    assert_agree(spread, alone)
    assert len(np.unique(alone[1].observation[3, :, 3])) > N // 2


def test_staggered_start_does_not_depend_on_device_count():
    env = make("CartPole-v1").replace(time_limit=np.where(np.arange(N) < N // 2, 4, 40))
    starts = [
        jax.jit(jaxenvs.vectorize(env, N, batched="time_limit", stagger=True, mesh=mesh).reset)(
            key()
        )[0]
        for mesh in (None, mesh_of(2))
    ]
    assert_agree(starts[0], starts[1])


def cannot(error, **kwargs):
    with pytest.raises(error) as refused:
        jaxenvs.vectorize(make("CartPole-v1"), **{"num_envs": N, **kwargs})
    return str(refused.value)


def test_indivisible_num_envs_suggests_valid_numbers():
    message = cannot(ShardingError, num_envs=30, mesh=mesh_of(8))
    assert "num_envs=30" in message and "24 or 32" in message and '"env"' in message
    assert "num_envs=8," in cannot(ShardingError, num_envs=5, mesh=mesh_of(8))


def test_non_meshes_are_rejected():
    message = cannot(ShardingError, mesh=jax.devices())
    assert "list" in message and "jax.make_mesh" in message


def test_misspelled_axis_suggests_the_closest():
    mesh = mesh_of(2, 4, names=("model", "env"))
    message = cannot(ShardingError, mesh=mesh, mesh_axis="envs")
    assert '"envs"' in message and 'Close: "env"' in message


def test_axis_without_a_mesh_is_rejected():
    assert "mesh=" in cannot(VectorizeError, mesh_axis="env")
