"""Pools inside compiled programs, by both ways in."""

import functools
import gc
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import chex
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import dispatch
from jax.sharding import Mesh, PartitionSpec

import jaxenvs
from jaxenvs.bridge.jit import after
from jaxenvs.bridge.jit import hosted as _hosted
from jaxenvs.bridge.native.libraries import reason_missing, xla_library
from jaxenvs.errors import PoolError, ShardingError, WorkerError
from jaxenvs.training import PPO, ActorCritic, make_train
from jaxenvs.wrappers import NormalizeReward, RecordEpisodeStatistics, ScaleReward
from tests.bridge.envs import Composite, Counter, Cut, Misbehaving, counters
from tests.ids import diagonal, every_nth

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
PATHS = (
    pytest.param(
        "ffi", marks=pytest.mark.skipif(reason_missing(xla_library) is not None, reason="no g++")
    ),
    "callback",
)
KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def _no_error_stays():
    """Forgets the tokens of programs that failed, which `jax.effects_barrier` raises again."""
    yield
    dispatch.runtime_tokens.clear()


@pytest.fixture(params=PATHS)
def path(request):
    return request.param


def hosted(path, n=4, *, env=None, mode="same_step", length=3, **kwargs):
    options = {"backend": "process", "num_workers": 2, "autoreset_mode": mode, **kwargs}
    pool = jaxenvs.make_pool(env or counters(n, length=length), n, **options)
    return jaxenvs.HostEnv(pool, path=path)


def scanned(env, length, action=None):
    """A program of `length` steps; what it returns is stacked."""
    action = jnp.zeros(env.num_envs, jnp.int32) if action is None else action

    def body(state, _):
        state, timestep = env.step(state, action, KEY)
        return state, timestep

    return jax.jit(lambda state: lax.scan(body, state, None, length=length))


def test_a_scan_sees_what_gymnasium_shows_from_the_same_seeds(path):
    n, steps = 6, 60
    actions = np.random.default_rng(0).integers(0, 2, (steps, n)).astype(np.int32)
    env = hosted(path, n, env="CartPole-v1")

    @jax.jit
    def program(key, actions):
        state, first = env.reset(key)

        def body(state, action):
            state, timestep = env.step(state, action, key)
            return state, timestep

        return first, lax.scan(body, state, actions)[1]

    first, steps_seen = program(KEY, actions)
    seeds = np.asarray(jax.vmap(jax.random.bits)(jax.random.split(KEY, n)) >> 1).tolist()
    theirs = gymnasium.make_vec(
        "CartPole-v1",
        n,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP},
    )
    np.testing.assert_array_equal(first.observation, theirs.reset(seed=seeds)[0])
    np.testing.assert_array_equal(first.final_observation, first.observation)
    for t in range(steps):
        observation, reward, terminated, truncated, info = theirs.step(actions[t])
        np.testing.assert_array_equal(steps_seen.observation[t], observation)
        np.testing.assert_array_equal(steps_seen.reward[t], reward)
        np.testing.assert_array_equal(steps_seen.terminated[t], terminated)
        np.testing.assert_array_equal(steps_seen.truncated[t], truncated)
        for i in range(n):
            final = info["final_obs"][i] if terminated[i] else observation[i]
            np.testing.assert_array_equal(steps_seen.final_observation[t, i], final)
    env.close()


def test_reset_and_step_return_one_tree_of_the_declared_types(path):
    env = hosted(path, env=Composite, n=3, mode="next_step")
    state, first = env.reset(KEY)
    action = env.action_space.sample(KEY)
    state, second = env.step(state, action, KEY)
    chex.assert_trees_all_equal_shapes_and_dtypes(first, second)
    assert env.observation_space.contains(second.observation)
    np.testing.assert_array_equal(second.observation["image"][:, 0, 0, 0], action["button"])
    np.testing.assert_array_equal(second.observation["speed"], action["stick"][:, 0])
    np.testing.assert_allclose(second.reward, action["stick"].sum(-1), rtol=1e-6)
    env.close()


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
def test_every_autoreset_mode_is_the_pools(path, mode):
    env = hosted(path, 2, mode=mode, env=[lambda: Counter(0, length=2), lambda: Cut(1, length=2)])
    state, _ = env.reset(KEY)
    seen = jax.device_get(scanned(env, 4)(state)[1])
    episodes = {"same_step": [1, 2, 2, 3], "next_step": [1, 1, 2, 2], "disabled": [1, 1, 1, 1]}
    counts = {"same_step": [1, 0, 1, 0], "next_step": [1, 2, 0, 1], "disabled": [1, 2, 2, 2]}
    done = {"same_step": [0, 1, 0, 1], "next_step": [0, 1, 0, 0], "disabled": [0, 1, 1, 1]}
    elapsed = {"same_step": [1, 0, 1, 0], "next_step": [1, 2, 0, 1], "disabled": [1, 2, 2, 2]}
    final = [1, 2, 1, 2] if mode == "same_step" else elapsed[mode]
    for row, ends in enumerate((seen.terminated, seen.truncated)):
        np.testing.assert_array_equal(ends[:, row], done[mode])
        assert not ends[:, 1 - row].any()
        np.testing.assert_array_equal(seen.observation[:, row, 1], episodes[mode])
        np.testing.assert_array_equal(seen.observation[:, row, 2], counts[mode])
        np.testing.assert_array_equal(seen.final_observation[:, row, 2], final)
        np.testing.assert_array_equal(seen.info["elapsed_step"][:, row], elapsed[mode])
        np.testing.assert_array_equal(seen.final_info["elapsed_step"][:, row], final)
    env.close()


def test_two_pools_in_cond_and_while_loop_step_as_often_as_asked(path):
    envs = [hosted(path, 2, length=100, num_workers=1) for _ in range(2)]
    action = jnp.zeros(2, jnp.int32)

    @jax.jit
    def program(key):
        first, _ = envs[0].reset(key)
        second, timestep = envs[1].reset(key)

        def body(carry):
            i, first, second, timestep = carry
            first, _ = envs[0].step(first, action, key)
            second, timestep = lax.cond(
                i % 3 == 0,
                lambda state: envs[1].step(state, action, key),
                lambda state: (state, timestep),
                second,
            )
            return i + 1, first, second, timestep

        return lax.while_loop(lambda carry: carry[0] < 10, body, (0, first, second, timestep))

    for _ in range(2):  # and again when it is executed again
        _, first, second, timestep = program(KEY)
        np.testing.assert_array_equal(timestep.info["elapsed_step"], 4)
        _, timestep = envs[0].step(first, action, KEY)
        np.testing.assert_array_equal(timestep.info["elapsed_step"], 11)
        del second
    for env in envs:
        env.close()


def test_an_old_state_is_refused_and_the_pool_goes_on(path):
    env = hosted(path)
    action = jnp.zeros(4, jnp.int32)
    old, _ = env.reset(KEY)
    new, _ = env.step(old, action, KEY)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"StaleStateError: .*stepped already"):
        jax.block_until_ready(env.step(old, action, KEY))
    _, timestep = env.step(new, action, KEY)
    np.testing.assert_array_equal(timestep.info["elapsed_step"], 2)
    env.close()


def test_a_state_of_a_pool_of_another_kind_is_refused(path):
    class Wide(Counter):
        observation_space = gymnasium.spaces.Box(-1, 1e6, (6,), np.float32)

        def _observation(self):
            return np.tile(super()._observation(), 2)

    env, other = hosted(path), hosted(path, env=Wide)
    state, (theirs, _) = env.reset(KEY)[0], other.reset(KEY)
    mixed = state.replace(token=theirs.token)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"another kind|do not fit its pool"):
        jax.block_until_ready(env.step(mixed, jnp.zeros(4, jnp.int32), KEY))
    env.close()
    other.close()


def test_tracing_lowering_and_collecting_a_program_step_nothing(path):
    env = hosted(path)
    action = jnp.zeros(4, jnp.int32)
    state, _ = env.reset(KEY)
    program = jax.jit(env.step).lower(state, action, KEY).compile()
    jax.eval_shape(env.step, state, action, KEY)
    del program
    gc.collect()
    jax.clear_caches()
    _, timestep = jax.jit(env.step)(state, action, KEY)
    np.testing.assert_array_equal(timestep.info["elapsed_step"], 1)
    env.close()


def test_steps_with_unused_results_are_still_made(path):
    env = hosted(path, length=100)
    state, _ = env.reset(KEY)
    state, _ = jax.jit(lambda state: scanned(env, 5)(state)[0])(state), None
    _, timestep = env.step(state, jnp.zeros(4, jnp.int32), KEY)
    np.testing.assert_array_equal(timestep.info["elapsed_step"], 6)
    env.close()


def test_send_and_recv_return_every_environment_that_was_sent(path):
    fns = [lambda i=i: (Cut if i % 2 else Counter)(i, length=3) for i in range(6)]
    env = hosted(path, 6, batch_size=2, env=fns)
    state, _ = env.reset(KEY)

    @jax.jit
    def program(state):
        state = env.send(state, jnp.zeros(6, jnp.int32))

        def body(state, _):
            state, timestep = env.recv(state)
            ids = timestep.info["env_id"]
            state = env.send(state, jnp.zeros(2, jnp.int32), ids)
            return state, timestep

        return lax.scan(body, state, None, length=30)

    seen = jax.device_get(program(state)[1])
    counts = np.zeros(6, int)
    for t, ids in enumerate(seen.info["env_id"]):
        assert len(set(ids.tolist())) == 2
        counts[ids] += 1
        episode, step = divmod(counts[ids] - 1, 3)
        last = np.stack([ids, episode + 1, step + 1], axis=1)
        np.testing.assert_array_equal(seen.final_observation[t], last)
        over = step == 2
        first = np.stack([ids, episode + 2, 0 * ids], axis=1)
        np.testing.assert_array_equal(seen.observation[t], np.where(over[:, None], first, last))
        np.testing.assert_array_equal(seen.info["elapsed_step"][t], np.where(over, 0, step + 1))
        np.testing.assert_array_equal(seen.terminated[t], over & (ids % 2 == 0))
        np.testing.assert_array_equal(seen.truncated[t], over & (ids % 2 == 1))
    env.close()


def test_lock_step_pool_allows_work_between_send_and_recv(path):
    env = hosted(path, length=100)
    state, _ = env.reset(KEY)

    @jax.jit
    def program(state, x):
        state = env.send(state, jnp.zeros(4, jnp.int32))
        x = x @ x
        state, timestep = env.recv(state)
        return timestep.observation[:, 2], x

    count, _ = program(state, jnp.eye(3))
    np.testing.assert_array_equal(count, 1)
    env.close()


def test_work_between_send_and_recv_is_done_between_them(path):
    env = hosted(path, length=100)
    state, _ = env.reset(KEY)
    actions = jnp.zeros(4, jnp.int32)

    @jax.jit
    def program(state, x, count):
        state = env.send(state, actions)
        x = lax.fori_loop(0, count, lambda _, x: jnp.sin(x), after(x, state))
        state, timestep = env.recv(after(state, x))
        return state, timestep.observation[:, 2], x

    x = jnp.array([-0.0, 1.0])
    compiled = program.lower(state, x, 3).compile()
    main = compiled.as_text().partition("ENTRY ")[2]  # is_scheduled: in the order of execution
    order = re.findall(r" (custom-call|call|while)\(", main)  # a small loop is called
    assert order in (["custom-call", work, "custom-call"] for work in ("call", "while"))
    _, count, x = compiled(state, x, 3)
    np.testing.assert_array_equal(count, 1)
    np.testing.assert_array_equal(x, jnp.sin(jnp.sin(jnp.sin(jnp.array([-0.0, 1.0])))))
    env.close()


@pytest.mark.parametrize("first", [jnp.bool_(True), jnp.float32(jnp.nan), KEY, {}, jnp.zeros((0,))])
def test_after_returns_its_value_unchanged(first):
    value = {"a": jnp.float32(-0.0), "b": jnp.array([True, False]), "key": KEY}
    found = jax.jit(after)(value, first)
    chex.assert_trees_all_equal(found, value)
    assert np.signbit(found["a"])
    grad = jax.grad(lambda x: after(x, x * 2) ** 2)(3.0)
    np.testing.assert_allclose(grad, 6.0)


MISUSES = {
    "recv without send": lambda env, state, one: env.recv(state),
    "send twice": lambda env, state, one: env.send(env.send(state, one, [1]), one, [1]),
    "send out of range": lambda env, state, one: env.send(state, one, [4]),
    "step while one is pending": lambda env, state, one: env.step(
        env.send(state, one, [1]), jnp.zeros(4, jnp.int32), KEY
    ),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_misuse_of_send_and_recv_is_an_error_and_no_hang(path, misuse):
    env = hosted(path, batch_size=2)
    state, _ = env.reset(KEY)
    one = jnp.zeros(1, jnp.int32)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"Call send|Call recv|numbered"):
        jax.block_until_ready(MISUSES[misuse](env, state, one))
    env.close()


def test_xla_functions_behave_as_those_of_envpool(path):
    if path == "callback":
        pytest.skip("xla() takes the better one")
    with jaxenvs.make_pool(counters(4, length=100), batch_size=2, num_workers=2) as pool:
        pool.async_reset(seed=0)
        handle, recv, send, _ = pool.xla()

        @jax.jit
        def program(handle):
            def body(handle, _):
                handle, (observation, _, _, _, info) = recv(handle)
                handle = send(handle, jnp.zeros(2, jnp.int32), info["env_id"])
                return handle, observation[:, 0].astype(jnp.int32) == info["env_id"]

            return lax.scan(body, handle, None, length=8)

        handle, agree = program(handle)
        assert agree.all()
        with pytest.raises(PoolError, match="HostEnv"):
            pool.recv()


def test_reset_where_begins_episodes_only_where_masked(path):
    env = hosted(path, length=100, mode="disabled")
    state, _ = env.reset(KEY)
    state, seen = scanned(env, 3)(state)
    timestep = jax.tree.map(lambda leaf: leaf[-1], seen)
    mask = jnp.array([True, False, False, True])
    state, timestep = jax.jit(env.reset_where)(mask, state, timestep, KEY)
    np.testing.assert_array_equal(timestep.observation[:, 2], [0, 3, 3, 0])
    _, timestep = env.step(state, jnp.zeros(4, jnp.int32), KEY)
    np.testing.assert_array_equal(timestep.observation[:, 2], [1, 4, 4, 1])
    env.close()


def test_entries_of_info_travel_as_arrays(path):
    env = hosted(path, info_fields=["count"])
    state, first = env.reset(KEY)
    _, seen = scanned(env, 2)(state)
    np.testing.assert_array_equal(first.info["count"], 0)
    np.testing.assert_array_equal(seen.info["count"][:, 0], [1, 2])
    np.testing.assert_array_equal(seen.info["env_id"][1], np.arange(4))
    env.close()


@pytest.mark.parametrize("backend", ["serial", "thread", "process", "asyncio", "native"])
def test_pool_made_without_a_mode_takes_that_of_its_host_env(backend):
    def pool(**options):
        make = counters(2, length=2)
        if backend == "native":
            make = lambda: gymnasium.vector.SyncVectorEnv(counters(2, length=2))  # noqa: E731
        return jaxenvs.make_pool(make, backend=backend, info_fields=["count"], **options)

    counts = {"same_step": [1, 0, 1, 0], "next_step": [1, 2, 0, 1], "disabled": [1, 2, 2, 2]}
    for asked, expected in ((None, "same_step"), ("next_step", "next_step"), ("disabled",) * 2):
        if backend == "native":  # which has a mode of its own
            asked, expected = None, "next_step"
        env = jaxenvs.HostEnv(pool(), autoreset_mode=asked)
        assert env.autoreset_mode == env.pools[0].autoreset_mode == expected
        assert env.pools[0].metadata["autoreset_mode"].name == expected.upper()
        state, _ = env.reset(KEY)
        _, seen = scanned(env, 4)(state)
        np.testing.assert_array_equal(seen.observation[:, 0, 2], counts[expected])
        np.testing.assert_array_equal(seen.info["count"][:, 0], counts[expected])
        assert jaxenvs.HostEnv(env.pools[0]).autoreset_mode == expected
        env.close()


def test_a_pool_keeps_the_mode_that_it_was_made_or_begun_with():
    make = functools.partial(jaxenvs.make_pool, counters(2), backend="serial")
    with make(autoreset_mode="next_step") as pool:
        with pytest.raises(PoolError, match='was made with autoreset_mode="next_step"'):
            jaxenvs.HostEnv(pool, autoreset_mode="same_step")
        assert jaxenvs.HostEnv(pool).autoreset_mode == "next_step"
    with make() as pool:
        pool.reset(seed=0)
        with pytest.raises(PoolError, match='has started episodes with autoreset_mode="next_step"'):
            jaxenvs.HostEnv(pool, autoreset_mode="same_step")
        assert jaxenvs.HostEnv(pool).autoreset_mode == "next_step"
    with make() as pool, pytest.raises(PoolError, match="expected one of 'same_step'"):
        jaxenvs.HostEnv(pool, autoreset_mode="same")
    with pytest.raises(PoolError, match="Pass time_limit=5"):
        jaxenvs.make_pool("gymnasium/CartPole-v1", 2, max_episode_steps=5)


def test_restarted_environment_keeps_the_mode_of_its_host_env(path, tmp_path):
    fns = [lambda: Misbehaving("is_killed", f"{tmp_path}/done"), *counters(1)]
    env = jaxenvs.HostEnv(jaxenvs.make_pool(fns, backend="process", num_workers=2), path=path)
    state, _ = env.reset(KEY)
    restarts, ends = 0, 0
    for _ in range(14):
        state, timestep = env.step(state, jnp.zeros(2, jnp.int32), KEY)
        restarts += int(timestep.info["restarted"][0])
        ends += int(timestep.done[0])
        assert not timestep.done[0] or timestep.observation[0, 2] == 0
    assert restarts == 1 and ends == 3
    env.close()


def test_hosted_pool_with_default_modes_can_be_trained_on():
    with jaxenvs.make_pool("gymnasium/CartPole-v1", 8) as pool:
        algorithm = PPO(epochs=1, minibatches=1)
        actor = ActorCritic(hidden_sizes=(4,))
        train = make_train(
            jaxenvs.HostEnv(pool), algorithm, actor=actor, unroll_length=4, total_steps=64
        )
        result = jax.jit(train)(KEY)
        assert np.isfinite(result.metrics["value_loss"]).all()


@pytest.mark.parametrize("shows_final", [True, False])
def test_info_is_of_the_new_episode_and_final_info_of_the_old(path, shows_final):
    options = {"num_workers": 1, "info_fields": ["count"], "autoreset_mode": "same_step"}
    pool = jaxenvs.make_pool(counters(2, length=2), backend="process", **options)
    env = jaxenvs.HostEnv(pool, path=path, final_observation=shows_final)
    state, first = env.reset(KEY)
    chex.assert_trees_all_equal(first.info, first.final_info)
    state, seen = scanned(env, 4)(state)
    np.testing.assert_array_equal(seen.info["count"][:, 0], [1, 0, 1, 0])
    np.testing.assert_array_equal(seen.final_info["count"][:, 0], [1, 2, 1, 2])
    assert (seen.final_observation is None) == (not shows_final)
    state, timestep = env.recv(env.send(state, jnp.zeros(2, jnp.int32)))
    chex.assert_trees_all_equal(timestep.info, timestep.final_info)
    env.close()


def test_reset_with_one_key_equals_reset_with_its_split(path):
    env = hosted(path, 3, env="CartPole-v1", num_workers=1)
    _, one = env.reset(KEY)
    _, each = env.reset(jax.random.split(KEY, 3))
    np.testing.assert_array_equal(one.observation, each.observation)
    env.close()


def test_rollout_evaluate_and_wrappers_accept_a_host_env(path):
    env = hosted(path, length=3)
    result = jaxenvs.rollout(env, None, 9, KEY)
    assert result.statistics["count"] == 12  # 4 environments, 3 episodes each
    np.testing.assert_allclose(result.statistics["return_mean"], 1 + 2 + 3)
    assert (jaxenvs.evaluate(env, None, 2, KEY).episode_length == 3).all()
    wrapped = env.wrap(RecordEpisodeStatistics).wrap(ScaleReward, 10.0).wrap(NormalizeReward)
    state, _ = wrapped.reset(KEY)
    _, seen = scanned(wrapped, 3)(state)
    np.testing.assert_array_equal(seen.final_info["episode_length"][:, 0], [1, 2, 3])
    env.close()


def test_gradients_stop_at_the_environments(path):
    env = hosted(path, 2)
    state, timestep = env.reset(KEY)

    def loss(weight, state):
        observation = timestep.observation * weight
        action = (observation.sum(-1) > 1e9).astype(jnp.int32)
        _, after = env.step(state, action, KEY)
        return (observation * after.reward[:, None]).sum()

    expected = timestep.observation.sum()  # rewards are 1, and constants
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(2.0, state), expected)
    env.close()


def test_vmap_is_refused_with_what_to_do_instead(path):
    env = hosted(path, 2)
    state, _ = env.reset(KEY)
    actions = jnp.zeros((3, 2), jnp.int32)
    for step in (env.step, jax.jit(env.step)):
        with pytest.raises(PoolError, match=r"HostEnv.* called under vmap.*Make a larger pool"):
            jax.vmap(lambda action, step=step: step(state, action, KEY)[1].reward)(actions)
    env.close()


def test_each_device_drives_its_own_slice(path):
    devices = jax.devices()[:4]
    mesh = Mesh(np.array(devices), ("env",))
    fns = counters(8, length=3)
    options = {"num_workers": 1, "autoreset_mode": "same_step", "on_failure": "restart"}
    pools = [jaxenvs.make_pool(fns[2 * i : 2 * i + 2], **options) for i in range(4)]
    env, one = jaxenvs.HostEnv(pools, mesh=mesh, path=path), hosted(path, 8)
    results = []
    for each in (env, one):
        state, first = jax.jit(each.reset)(KEY)
        results.append(jax.device_get((first.observation, scanned(each, 5)(state)[1].observation)))
    chex.assert_trees_all_equal(*results)
    # And in a shard_map of the user's own.
    state, _ = jax.jit(env.reset)(KEY)
    over = PartitionSpec("env")
    step = jax.shard_map(
        lambda state, action: env.step(state, action, KEY)[1].observation,
        mesh=mesh,
        in_specs=(over, over),
        out_specs=over,
        check_vma=False,
    )
    observation = jax.jit(step)(state, jnp.zeros(8, jnp.int32))
    np.testing.assert_array_equal(observation[:, 2], 1)
    np.testing.assert_array_equal(observation[:, 0], np.arange(8))
    with pytest.raises(ShardingError, match="one pool for each"):
        jaxenvs.HostEnv(pools[:2], mesh=mesh)
    env.close()
    one.close()


def test_failure_on_one_device_is_logged_and_the_program_goes_on(path, tmp_path, capfd, caplog):
    mesh = Mesh(np.array(jax.devices()[:2]), ("env",))
    fns = [Counter, lambda: Misbehaving("raises", str(tmp_path / "done"), at=3)]
    options = {"num_workers": 1, "autoreset_mode": "same_step", "backend": "process"}
    pools = [jaxenvs.make_pool([fn], on_failure="restart", **options) for fn in fns]
    env = jaxenvs.HostEnv(pools, mesh=mesh, path=path)
    result = jaxenvs.rollout(env, None, 8, KEY)  # which adds over the devices
    restarted = np.asarray(result.trajectory.info["restarted"])
    np.testing.assert_array_equal(restarted.sum(0), [0, 1])
    assert "deliberate" in capfd.readouterr().err + caplog.text
    rollout = jax.jit(lambda: jaxenvs.rollout(env, None, 200, KEY).statistics)
    rollout()  # dispatched, and not waited for
    env.close()


class _MadeOnce(Misbehaving):
    """Cannot be constructed again once it has misbehaved."""

    def __init__(self, what, marker, at):
        if os.path.exists(marker):
            raise OSError("the port is taken")
        super().__init__(what, marker, at=at)


@pytest.mark.parametrize("what", ["raises", "is_killed"])
def test_failed_restart_ends_this_program_and_later_ones(path, what, tmp_path):
    fns = [lambda: Counter(length=100), lambda: _MadeOnce(what, str(tmp_path / "done"), at=3)]
    env = hosted(path, 2, env=fns, on_failure="restart")
    state, _ = env.reset(KEY)
    with pytest.raises(jax.errors.JaxRuntimeError, match="the port is taken"):
        jax.block_until_ready(scanned(env, 6)(state))
    for _ in range(2):
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"port is taken|cannot continue"):
            jax.block_until_ready(env.reset(KEY))
    env.close()


@pytest.mark.parametrize(
    ("what", "adds"), diagonal(["raises", "is_killed", "hangs"], ["in every step", "at the end"])
)
def test_error_on_one_device_ends_the_program_on_all(path, what, adds, tmp_path):
    mesh = Mesh(np.array(jax.devices()[:3]), ("env",))
    fns = [Counter, lambda: _MadeOnce(what, str(tmp_path / "done"), at=3), Counter]
    failure = "restart" if what == "is_killed" else "raise"
    options = {"num_workers": 1, "autoreset_mode": "same_step", "backend": "process"}
    timeout = {"timeout": 0.2} if what == "hangs" else {}
    pools = [jaxenvs.make_pool([fn], on_failure=failure, **timeout, **options) for fn in fns]
    env = jaxenvs.HostEnv(pools, mesh=mesh, path=path)

    @jax.jit
    def program(state):
        def body(state, _):
            state, timestep = env.step(state, jnp.zeros(3, jnp.int32), KEY)
            sums = timestep.reward.sum() if adds == "in every step" else timestep.reward
            return state, (sums, timestep.truncated)

        return state, lax.scan(body, state, None, length=20)[1]

    def run_twice(state):
        for _ in range(2):  # devices that are ahead may finish the first one
            state, (_, truncated) = jax.block_until_ready(program(state))
            assert np.asarray(truncated)[3:, 1].all()  # flagged until then

    with pytest.raises(jax.errors.JaxRuntimeError, match=r"deliberate|port is taken|not answer"):
        run_twice(jax.jit(env.reset)(KEY)[0])
    for pool in pools:
        pool.close(grace=0.1)


@pytest.mark.parametrize("what", ["raises", "exits"])
def test_environment_exception_stops_the_program_with_traceback(path, what, tmp_path):
    fns = [Counter, lambda: Misbehaving(what, str(tmp_path / "done"), at=3)]
    env = hosted(path, 2, env=fns)
    state, _ = env.reset(KEY)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"environment 1 (.|\n)*envs\.py"):
        jax.block_until_ready(scanned(env, 6)(state))
    state, _ = env.reset(KEY)  # it was made anew
    jax.block_until_ready(scanned(env, 6)(state))
    env.close()


def test_failed_environments_of_one_worker_are_all_named(path, tmp_path):
    fns = [lambda i=i: Misbehaving("raises", str(tmp_path / f"{i}"), at=2) for i in range(2)]
    env = hosted(path, 2, env=fns, num_workers=1)
    state, _ = env.reset(KEY)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"environment 0 (.|\n)*environment 1 "):
        jax.block_until_ready(scanned(env, 3)(state))
    env.close()


def test_worker_killed_inside_a_program_is_replaced_and_flagged(path, tmp_path):
    fns = [Counter, lambda: Misbehaving("is_killed", str(tmp_path / "done"), at=3)]
    env = hosted(path, 2, env=[lambda: Counter(length=100), fns[1]])
    state, _ = env.reset(KEY)
    _, seen = scanned(env, 6)(state)
    np.testing.assert_array_equal(seen.observation[:, 0, 2], [1, 2, 3, 4, 5, 6])
    np.testing.assert_array_equal(seen.info["restarted"][:, 1], [0, 0, 1, 0, 0, 0])
    np.testing.assert_array_equal(seen.truncated[:, 1], [0, 0, 1, 0, 0, 0])
    np.testing.assert_array_equal(seen.observation[:, 1, 2], [1, 2, 0, 1, 2, 3])
    np.testing.assert_array_equal(seen.final_observation[2, 1, 2], 2)  # the last that was seen
    env.close()


@pytest.mark.parametrize("on_failure", ["raise", "restart"])
def test_hang_inside_a_program_raises_or_restarts(path, on_failure, tmp_path):
    fns = [Counter, lambda: Misbehaving("hangs", str(tmp_path / "done"), at=2)]
    env = hosted(path, 2, env=fns, timeout=0.3, on_failure=on_failure)
    state, _ = env.reset(KEY)
    if on_failure == "raise":
        with pytest.raises(jax.errors.JaxRuntimeError, match="did not answer"):
            jax.block_until_ready(scanned(env, 3)(state))
    else:
        _, seen = scanned(env, 3)(state)
        np.testing.assert_array_equal(seen.info["restarted"][:, 1], [0, 1, 0])
    begin = time.monotonic()
    env.close()
    assert time.monotonic() - begin < 3  # not the 5 s that environments have for their close()


def test_state_is_still_valid_after_a_refused_call(path):
    env = hosted(path, length=100)
    state, _ = env.reset(KEY)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"ActionError: .*environment|action 0"):
        jax.block_until_ready(env.step(state, jnp.full(4, 7, jnp.int32), KEY))
    sent = env.send(state, jnp.zeros(4, jnp.int32))
    with pytest.raises(jax.errors.JaxRuntimeError, match="Call recv"):
        jax.block_until_ready(env.step(sent, jnp.zeros(4, jnp.int32), KEY))
    state, timestep = env.recv(sent)
    np.testing.assert_array_equal(timestep.observation[:, 2], 1)
    env.close()


def test_nan_actions_are_refused_unless_validation_is_off(path):
    action = {"button": jnp.zeros(2, jnp.int32), "stick": jnp.full((2, 2), jnp.nan)}
    env = hosted(path, env=Composite, n=2)
    state, _ = env.reset(KEY)
    with pytest.raises(jax.errors.JaxRuntimeError, match="NaN"):
        jax.block_until_ready(env.step(state, action, KEY))
    env.close()
    env = hosted(path, env=Composite, n=2, validate=False)
    state, _ = env.reset(KEY)
    _, timestep = env.step(state, action | {"button": jnp.full(2, 9, jnp.int32)}, KEY)
    assert jnp.isnan(timestep.reward).all()
    env.close()


class Wide(gymnasium.Env):
    """Rewards an action that no int32 holds; its space is wider than int64."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(0, 2**64 - 1, (1,), np.uint64)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), float(int(action[0]) == 2**31 + 5), False, False, {}


def test_a_space_of_actions_may_be_wider_than_int64(path):
    env = hosted(path, env=Wide, n=2)
    state, _ = env.reset(KEY)
    action = jnp.full((2, 1), 2**31 + 5, jnp.uint32)
    _, timestep = env.step(state, action, KEY)
    np.testing.assert_array_equal(timestep.reward, [1, 1])
    env.close()


def test_reset_after_a_timeout_waits_for_the_pending_step(path):
    env = hosted(path, 1, env=[lambda: Counter(seconds=1000)], num_workers=1, timeout=0.05)
    reset = jax.jit(env.reset)
    state, _ = reset(KEY)
    with pytest.raises(jax.errors.JaxRuntimeError, match="did not answer"):
        jax.block_until_ready(env.step(state, jnp.zeros(1, jnp.int32), KEY))
    for _ in range(20):  # more than there is room for
        with pytest.raises(jax.errors.JaxRuntimeError, match="did not answer"):
            jax.block_until_ready(reset(KEY))
    env.pools[0].close(grace=0.1)


def test_second_host_env_of_a_pool_must_use_the_same_path(path):
    first = hosted(path)
    assert jaxenvs.HostEnv(first.pools[0]).path == path
    other = {"ffi": "callback", "callback": "ffi"}[path]
    with pytest.raises(PoolError, match=f'already uses with path="{path}"'):
        jaxenvs.HostEnv(first.pools[0], path=other)
    state, _ = first.reset(KEY)
    jax.block_until_ready(first.step(state, jnp.zeros(4, jnp.int32), KEY))
    first.close()


def _play(pool, calls):
    for _ in range(calls):
        pool.send(np.zeros(pool.batch_size, int), pool.recv()[4]["env_id"])


def test_xla_is_refused_while_recv_still_owes_a_batch(tmp_path):
    bad = Misbehaving("raises", str(tmp_path / "done"), at=1)
    fns = [Counter, lambda: bad, Counter, Counter]
    with jaxenvs.make_pool(fns, batch_size=2, num_workers=1) as pool:
        pool.async_reset()
        with pytest.raises(WorkerError):
            _play(pool, 20)
        with pytest.raises(PoolError, match=r"Call\s+recv"):
            pool.xla()


PROGRAM = """
import os, signal, sys, threading, time
import jax, jax.numpy as jnp, jaxenvs
from tests.bridge.envs import Counter

action, key = jnp.zeros(2, jnp.int32), jax.random.key(0)

def compiled(seconds, path, **options):
    env_fn = lambda: Counter(length=10**6, seconds=seconds)
    options = {"backend": "process", "num_workers": 1} | options
    env = jaxenvs.HostEnv(jaxenvs.make_pool(env_fn, 2, **options), path=path)
    state, _ = env.reset(key)
    step = lambda state, _: (env.step(state, action, key)[0], None)
    program = jax.jit(lambda state: jax.lax.scan(step, state, None, length=10_000)[0])
    return env, state, program.lower(state).compile()

def interrupt(*after):
    begin = time.monotonic()  # before a timer starts, which could fire earlier otherwise
    for each in after:
        threading.Timer(each, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    return begin
"""


def output_of(code, *args):
    run = [sys.executable, "-c", PROGRAM + code, *args]
    found = subprocess.run(run, capture_output=True, text=True, timeout=60)
    return found.stdout, found.stderr


def test_ctrl_c_ends_a_program_that_steps_without_python():
    if reason_missing(xla_library) is not None:
        pytest.skip("no g++")
    code = """
for seconds in (0.01, 1000):  # it steps, and it hangs
    env, state, program = compiled(seconds, "ffi")
    begin = interrupt(0.3)
    try:
        jax.block_until_ready(program(state))
    except (KeyboardInterrupt, jax.errors.JaxRuntimeError):
        print("interrupted", time.monotonic() - begin < 3)
    env.pools[0].close(grace=0.2)
"""
    stdout, stderr = output_of(code)
    assert stdout.count("interrupted True") == 2, stdout + stderr


def test_ctrl_c_ends_a_program_on_every_backend_in_2_s():
    if reason_missing(xla_library) is not None:
        pytest.skip("no g++")
    code = """
for backend in ("serial", "thread", "asyncio", "process"):
    env, state, program = compiled(0.01, "callback", backend=backend, num_workers="auto")
    begin = interrupt(0.3)
    try:
        try:
            jax.block_until_ready(program(state))
        except jax.errors.JaxRuntimeError:
            while time.monotonic() < begin + 5:
                time.sleep(0.01)
    except KeyboardInterrupt:
        print("interrupted", time.monotonic() - begin < 2.3)
    env.pools[0].close(grace=0.2)
"""
    stdout, stderr = output_of(code)
    assert stdout.count("interrupted True") == 4, stdout + stderr


def test_ctrl_c_while_a_program_learns_ends_it_at_the_next_step(path):
    if reason_missing(xla_library) is not None:
        pytest.skip("no g++")
    code = """
def learn(x):
    time.sleep(0.5)
    return x

env, state, _ = compiled(0.0, sys.argv[1])

def step(state, _):
    state, timestep = env.step(state, action, key)
    wait = jax.experimental.io_callback(learn, timestep.reward, timestep.reward, ordered=True)
    return state, wait

begin = interrupt(0.9)
try:
    jax.block_until_ready(jax.jit(lambda state: jax.lax.scan(step, state, None, 12))(state))
except (KeyboardInterrupt, jax.errors.JaxRuntimeError):
    print("interrupted", time.monotonic() - begin < 2.9)
"""
    stdout, stderr = output_of(code, path)
    assert "interrupted True" in stdout, stdout + stderr


@pytest.mark.parametrize("order", every_nth(2, ["before", "after"]))
def test_ctrl_c_under_stop_request_ends_a_program_when_repeated(order):
    if reason_missing(xla_library) is not None:
        pytest.skip("no g++")
    code = """
from jaxenvs.training.signals import StopRequest

early = StopRequest() if sys.argv[1] == "before" else None
env, _, program = compiled(0.01, "ffi")

def ended(after, *signals):
    begin = interrupt(*signals)
    try:
        jax.block_until_ready(program(env.reset(key)[0]))
    except (KeyboardInterrupt, jax.errors.JaxRuntimeError):
        seconds = time.monotonic() - begin
        print(after <= seconds < after + 3 or seconds)

asked = early or StopRequest()
ended(0.5, 0.2, 0.5)
print(asked.received == signal.SIGINT)
ended(0.2, 0.2)
asked = StopRequest()
asked.cancel()
ended(0.2, 0.2)
print(asked.received is None)
env.pools[0].close(grace=0.2)
"""
    stdout, stderr = output_of(code, order)
    assert stdout == "True\n" * 5, stdout + stderr


def test_pool_can_be_closed_while_a_program_hangs(path, tmp_path):
    env = hosted(path, 2, env=[Counter, lambda: Counter(seconds=1000)])
    state, _ = env.reset(KEY)
    told = []

    def program():
        try:
            jax.block_until_ready(env.step(state, jnp.zeros(2, jnp.int32), KEY))
        except jax.errors.JaxRuntimeError as error:
            told.append(error)

    thread = threading.Thread(target=program)
    thread.start()
    time.sleep(0.2)
    begin = time.monotonic()
    env.pools[0].close(grace=0.3)
    assert time.monotonic() - begin < 3
    thread.join(5)
    assert not thread.is_alive() and told


def test_calls_of_methods_wait_for_the_call_of_a_program(path):
    env = hosted(path, 2, length=10**6)
    state, _ = env.reset(KEY)
    program = scanned(env, 50)
    jax.block_until_ready(program(state))
    state, _ = env.reset(KEY)
    done = threading.Event()
    answers = []

    def ask():
        while not done.is_set():
            answers.append(env.pools[0].call("process"))

    thread = threading.Thread(target=ask)
    thread.start()
    _, seen = program(state)
    np.testing.assert_array_equal(np.asarray(seen.observation)[:, 0, 2], np.arange(1, 51))
    done.set()
    thread.join(20)
    assert not thread.is_alive() and len(set(answers)) == 1
    env.close()


def test_program_fails_on_a_closed_pool_and_serves_another(path):
    env = hosted(path)
    program = scanned(env, 2)
    state, _ = env.reset(KEY)
    env.close()
    with pytest.raises(jax.errors.JaxRuntimeError, match="closed"):
        jax.block_until_ready(program(state))
    # The program names no pool: the token does. Another pool can be stepped by it.
    other = hosted(path)
    state, _ = other.reset(KEY)
    _, seen = program(state)
    np.testing.assert_array_equal(seen.info["elapsed_step"][:, 0], [1, 2])
    other.close()


def test_closing_waits_for_the_programs_that_were_dispatched(path):
    env = hosted(path, 2, env=counters(2, length=1000, seconds=0.002))
    state, _ = env.reset(KEY)
    outputs = scanned(env, 40)(state)
    env.close()  # in the middle of it
    np.testing.assert_array_equal(outputs[1].info["elapsed_step"][-1], 40)


def test_dropped_host_env_ends_the_workers_of_its_pool(path):
    env = hosted(path)
    state, _ = jax.jit(env.reset)(KEY)
    jax.block_until_ready(scanned(env, 3)(state))
    jaxenvs.rollout(env, None, 3, KEY)
    jaxenvs.evaluate(env.wrap(RecordEpisodeStatistics), None, 1, KEY)
    pids, number = env.pools[0]._backend.pids, int(state.token[0, 0])
    del env
    gc.collect()
    assert number not in _hosted._hosted
    import psutil

    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_program_that_is_kept_holds_the_workers_until_close(path):
    env = hosted(path, 1, num_workers=1)
    state, _ = env.reset(KEY)
    step = jax.jit(env.step)
    jax.block_until_ready(step(state, jnp.zeros(1, jnp.int32), KEY))
    pool, (pid,) = weakref.ref(env.pools[0]), env.pools[0]._backend.pids
    del env
    gc.collect()
    import psutil

    assert pool() is not None and psutil.pid_exists(pid)
    pool().close()
    assert not psutil.pid_exists(pid)


def test_threads_may_run_programs_of_different_pools_at_once(path):
    envs = [hosted(path, 2, length=100, num_workers=1) for _ in range(2)]
    found = {}

    def run(i):
        state, _ = envs[i].reset(KEY)
        _, seen = scanned(envs[i], 50)(state)
        found[i] = np.asarray(seen.info["elapsed_step"][:, 0])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(2):
        np.testing.assert_array_equal(found[i], np.arange(1, 51))
        envs[i].close()


def test_a_pools_own_calls_wait_for_the_program_under_way(path):
    env = hosted(path, 2, length=1000, env=counters(2, length=1000, seconds=0.002))
    state, _ = env.reset(KEY)
    outputs = scanned(env, 30)(state)  # dispatched, perhaps not finished
    frames = env.pools[0].render()
    assert len(frames) == 2
    np.testing.assert_array_equal(outputs[1].info["elapsed_step"][:, 0], np.arange(1, 31))
    np.testing.assert_array_equal(env.render(outputs[0], 1), frames[1])
    env.close()


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.slow
def test_no_deadlock_with_large_arrays_and_asynchronous_dispatch(path, devices):
    program = f"""
    import jax, jax.numpy as jnp, numpy as np, gymnasium, jaxenvs
    class Large(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 255, (300, 300), np.uint8)
        action_space = gymnasium.spaces.Box(-1, 1, (5000,), np.float32)
        def reset(self, *, seed=None, options=None):
            return np.zeros((300, 300), np.uint8), {{}}
        def step(self, action):
            return np.full((300, 300), 7, np.uint8), float(action.sum()), False, False, {{}}
    assert jax.device_count() == {devices}
    env = jaxenvs.HostEnv(jaxenvs.make_pool(Large, 8, num_workers=2), path={path!r})
    state, timestep = env.reset(jax.random.key(0))
    @jax.jit
    def run(state):
        def body(state, _):
            state, timestep = env.step(state, jnp.ones((8, 5000)), None)
            return state, timestep.observation.sum(dtype=jnp.int32) + timestep.reward.sum()
        return jax.lax.scan(body, state, None, length=20)
    for _ in range(5):
        state, out = run(state)
    assert (out == 8 * 300 * 300 * 7 + 8 * 5000).all(), out
    env.close()
    print("fine")
    """
    flags = f"--xla_force_host_platform_device_count={devices}"
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "XLA_FLAGS": flags},
    )
    assert run.stdout.strip().endswith("fine"), run.stderr[-2000:]


def test_pool_stepped_by_programs_refuses_direct_calls():
    with jaxenvs.make_pool(counters(2), backend="serial") as pool:
        pool.reset()
        env = jaxenvs.HostEnv(pool)
        assert env.path == "callback"
        for call in (
            lambda: pool.step([0, 0]),
            lambda: pool.reset(),
            lambda: pool.step_async([0, 0]),
            lambda: pool.send([0, 0], [0, 1]),
            lambda: pool.async_reset(),
        ):
            with pytest.raises(PoolError, match="stepped by compiled programs"):
                call()


def test_host_env_refuses_invalid_pools_and_paths():
    with jaxenvs.make_pool(counters(2), backend="serial") as pool:
        with pytest.raises(PoolError, match='path="auto"'):
            jaxenvs.HostEnv(pool, path="ffi")
        with pytest.raises(PoolError, match="twice"):
            jaxenvs.HostEnv([pool, pool])
        with pytest.raises(PoolError, match="make_pool"):
            jaxenvs.HostEnv("CartPole-v1")
    with pytest.raises(PoolError, match="after close"):
        jaxenvs.HostEnv(pool)
