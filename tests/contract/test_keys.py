"""User code never receives the same key, or a child of the same key, twice."""

import dataclasses
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

import jaxenvs
from jaxenvs import spaces, struct, wrappers
from jaxenvs.core import Environment, TimeStep, Wrapper
from jaxenvs.training import PPO, make_train
from tests.ids import diagonal, every_nth
from tests.opaque import OpaqueVectorEnv

N, MAX_ROWS, SLOTS = 8, 12, 4
# The slots of a step: its key, the key of the action, and one per wrapper.
STEP, SPACE, POLICY = 0, 1, 1
CHILDREN = 9
MAX_KEYS = 1024


class KeyWords(spaces.Box):
    """A space whose actions record the key they were drawn with: uint32[SLOTS, 2]."""

    def __init__(self):
        super().__init__(0, 2**32 - 1, (SLOTS, 2), np.uint32)

    def sample(self, key, shape=(), *args, **kwargs):
        assert not shape
        return jnp.zeros((SLOTS, 2), jnp.uint32).at[SPACE].set(words(key))


def words(key):
    return jax.random.key_data(key).astype(jnp.uint32)


@chex.dataclass(frozen=True)
class RecorderState:
    log: jax.Array  # uint32[MAX_ROWS, SLOTS, 2], the words of all keys of the episode, zero-padded
    count: jax.Array  # int32[], the number of rows in use


class Recorder(Environment[RecorderState]):
    """An environment that shows every key it received in the current episode."""

    length: int = struct.static(3)  # steps per episode

    @property
    def observation_space(self):
        return spaces.Dict(
            {
                "log": spaces.Box(0, 2**32 - 1, (MAX_ROWS, SLOTS, 2), np.uint32),
                "count": spaces.Box(0, MAX_ROWS, (), np.int32),
            }
        )

    @property
    def action_space(self):
        return KeyWords()

    def reset(self, key):
        log = jnp.zeros((MAX_ROWS, SLOTS, 2), jnp.uint32).at[0, STEP].set(words(key))
        state = RecorderState(log=log, count=jnp.int32(1))
        return state, TimeStep.first(self.observe(state))

    def step(self, state, action, key):
        log = state.log.at[state.count].set(action.at[STEP].set(words(key)), mode="drop")
        state = RecorderState(log=log, count=state.count + 1)
        over = state.count > self.length
        return state, TimeStep.transition(self.observe(state), reward=0.0, terminated=over)

    def observe(self, state):
        return {"log": state.log, "count": state.count}


class KeyedWrapper(wrappers.Transform):
    """A wrapper that records the key it may draw from."""

    slot: int = struct.static()

    def on_action(self, memory, action, key):
        return memory, action.at[self.slot].set(words(key))


def log_of(observation):
    """Returns the keys in one observation, [number, 2]."""
    log = np.asarray(observation["log"])[: int(observation["count"])].reshape(-1, 2)
    return log[log.any(axis=-1)]


@jax.jit
def children_of(keys):
    """Returns the words of the children of each key; those of `split` are the same."""
    each = jax.vmap(lambda key: jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(CHILDREN)))
    return words(each(jax.random.wrap_key_data(keys)))


class Seen:
    """All recorded keys; those of an episode come from its last observation."""

    def __init__(self):
        self.keys = []

    def add(self, observation):
        self.keys += map(tuple, log_of(observation))

    def batch(self, observation, rows=None):
        for i in np.flatnonzero(np.ones(N, bool) if rows is None else rows):
            self.add(jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[i], observation))

    def check(self, least):
        assert len(self.keys) >= least
        padded = np.zeros((MAX_KEYS, 2), np.uint32)
        padded[: len(self.keys)] = self.keys
        children = np.asarray(children_of(padded))[: len(self.keys)]
        every = self.keys + [tuple(row) for row in children.reshape(-1, 2)]
        assert len(set(every)) == len(every) == len(self.keys) * (1 + CHILDREN)


def test_split_and_fold_in_give_the_same_keys():
    key = jax.random.key(3)
    folded = [jax.random.key_data(jax.random.fold_in(key, i)) for i in range(CHILDREN)]
    np.testing.assert_array_equal(jax.random.key_data(jax.random.split(key, CHILDREN)), folded)


def mesh_of(kind):
    return jax.make_mesh((8,), ("env",), axis_types=(kind,))


KEYS = {
    "one": lambda t: jax.random.fold_in(jax.random.key(5), t),
    "per instance": lambda t: jax.random.split(jax.random.fold_in(jax.random.key(5), t), N),
    "raw": lambda t: jax.random.fold_in(jax.random.PRNGKey(5), t),
    "rbg": lambda t: jax.random.fold_in(jax.random.key(5, impl="rbg"), t),
}
WRAPPED = {
    "plain": lambda env: env,
    "inside": lambda env: env.wrap(KeyedWrapper, 2).wrap(KeyedWrapper, 3),
    "opaque": lambda env: OpaqueVectorEnv(env.wrap(KeyedWrapper, 2)).wrap(KeyedWrapper, 3),
    "statistics": lambda env: env.wrap(wrappers.NormalizeReward).wrap(KeyedWrapper, 2),
}
# Every mode with every form of key, and the other options in rotation.
NATIVE = [
    (mode, form, *more)
    for (mode, form), more in zip(
        itertools.product(("same_step", "next_step", "disabled"), KEYS),
        itertools.cycle(itertools.product((None, "Auto", "Explicit"), WRAPPED, (None, 1))),
        strict=False,
    )
] + [
    ("same_step", "one", None, "opaque", 1),
    ("same_step", "per instance", "Explicit", "opaque", N),
    ("next_step", "one", "Auto", "inside", 2),
    ("disabled", "per instance", "Auto", "statistics", None),
]


@pytest.mark.parametrize(("mode", "form", "mesh", "wrapped", "chunk"), every_nth(2, NATIVE))
def test_batch_uses_every_key_once(mode, form, mesh, wrapped, chunk):
    mesh = None if mesh is None else mesh_of(AxisType[mesh])
    env = jaxenvs.vectorize(Recorder(), N, autoreset_mode=mode, mesh=mesh, reset_chunk=chunk)
    env, seen = WRAPPED[wrapped](env), Seen()
    step, number = jax.jit(env.step), itertools.count()
    nothing = np.zeros((N, SLOTS, 2), np.uint32)

    state, timestep = jax.jit(env.reset)(KEYS[form](next(number)))
    was_done = np.zeros(N, bool)
    for t in range(9):
        state, timestep = step(state, nothing, KEYS[form](next(number)))
        done = np.asarray(timestep.done)
        seen.batch(timestep.final_observation, done & ~(was_done & (mode == "disabled")))
        was_done = done
        if t == 4:
            mask = np.arange(N) < 3
            live = mask & (mode != "disabled") & ~(done & (mode == "next_step"))
            seen.batch(timestep.observation, live)
            reset_where = jax.jit(env.reset_where)
            state, timestep = reset_where(mask, state, timestep, KEYS[form](next(number)))
            was_done = np.asarray(timestep.done)
    if mode != "disabled":
        seen.batch(timestep.observation, ~was_done if mode == "next_step" else None)
    seen.check(N * (4 if mode == "disabled" else 8))


@pytest.mark.parametrize(("mesh", "form"), diagonal([None, "Auto"], KEYS))
def test_staggered_start_uses_every_key_once(form, mesh):
    mesh = None if mesh is None else mesh_of(AxisType[mesh])
    env = jaxenvs.vectorize(Recorder(length=100), N, stagger=6, mesh=mesh)
    env, seen = env.wrap(KeyedWrapper, 2), Seen()
    state, _ = jax.jit(env.reset)(KEYS[form](0))
    nothing = np.zeros((N, SLOTS, 2), np.uint32)
    _, timestep = jax.jit(env.step)(state, nothing, KEYS[form](1))
    seen.batch(timestep.observation)
    seen.check(N * 6)


def test_repeated_actions_use_different_keys():
    env, seen = wrappers.RepeatAction(KeyedWrapper(Recorder(), 2), 2), Seen()
    env = KeyedWrapper(env, 3)
    state, _ = jax.jit(env.reset)(jax.random.key(7))
    nothing = np.zeros((SLOTS, 2), np.uint32)
    _, timestep = jax.jit(env.step)(state, nothing, jax.random.key(1))
    log = log_of(timestep.observation)
    # The outer wrapper draws once for both repetitions.
    assert len(log) == 7
    seen.keys = list(set(map(tuple, log)))
    seen.check(6)


@pytest.mark.parametrize("function", ["rollout", "evaluate"])
def test_rollouts_use_every_key_once(function):
    @jax.tree_util.Partial
    def policy(carry, timestep, key):
        action = jnp.zeros((N, SLOTS, 2), jnp.uint32)
        # The batch has a single key, so record it once.
        return carry + 1, action.at[0, POLICY].set(words(key))

    seen, env = Seen(), jaxenvs.vectorize(Recorder(), N)
    if function == "rollout":
        result = jaxenvs.rollout(env, policy, 4, jax.random.key(0), policy_carry=jnp.int32(0))
        result = jaxenvs.rollout(env, policy, 4, state=result.state)
        for t in range(4):
            row = jax.tree.map(lambda leaf, t=t: np.asarray(leaf)[t], result.trajectory)
            seen.batch(row.final_observation, np.asarray(row.terminated))
        seen.batch(result.state.timestep.observation)
        seen.check(N * 6)
    else:
        logs = []

        class LogObservations(Wrapper):
            def reset(self, key):
                return self.env.reset(key)

            def step(self, state, action, key):
                state, timestep = self.env.step(state, action, key)
                jax.debug.callback(lambda *values: logs.append(values), timestep.observation)
                return state, timestep

        env = jaxenvs.vectorize(LogObservations(Recorder()), N)
        evaluation = jaxenvs.evaluate(env, policy, 2, jax.random.key(0), policy_carry=jnp.int32(0))
        jax.block_until_ready(evaluation)
        jax.effects_barrier()
        for (observation,) in logs:
            if observation["count"] > 3:
                seen.add(observation)
        seen.check(N * 8)


class TrainableRecorder(Recorder):
    """A recorder for training: observations and actions do not contain keys."""

    @property
    def observation_space(self):
        return spaces.Box(0.0, 1.0, (1,))

    @property
    def action_space(self):
        return spaces.Discrete(2)

    def step(self, state, action, key):
        return super().step(state, jnp.zeros((SLOTS, 2), jnp.uint32), key)

    def observe(self, state):
        return jnp.ones(1, jnp.float32)


def test_training_uses_every_key_once():
    env = jaxenvs.vectorize(TrainableRecorder(length=100), N)
    ppo = PPO(epochs=1, minibatches=1)
    train = make_train(env, ppo, unroll_length=2, total_steps=N * 2 * 4)
    state = jax.jit(train)(jax.random.key(0)).learner_state.collector.env_state
    seen = Seen()
    seen.batch(dataclasses.asdict(state))
    seen.check(N * 9)


def in_numpy(make):
    """Returns a function that runs a make_gym batch and reseeds it midway."""

    def play(seen, seed, other, **options):
        env = make(**options)
        env.reset(seed=seed)
        nothing = np.zeros((N, SLOTS, 2), np.uint32)
        was_done = np.zeros(N, bool)
        for t in range(8):
            mode = env.autoreset_mode.value
            observation, _, terminated, _, infos = env.step(nothing)
            if mode == "SameStep":
                for i in np.flatnonzero(terminated):
                    seen.add(infos["final_obs"][i])
            else:
                seen.batch(observation, terminated & ~(was_done & (mode == "Disabled")))
            was_done = terminated
            if t == 4:
                mask = (np.arange(N) < 3) | (mode == "Disabled")
                if mode == "SameStep":
                    seen.batch(observation, mask)
                seen.batch(observation, mask & ~was_done & (mode == "NextStep"))
                env.reset(seed=other, options={"reset_mask": mask})
                was_done &= ~mask
        if mode == "SameStep":
            seen.batch(observation)
        env.close()

    return play


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
@pytest.mark.parametrize(
    ("seed", "other"),
    [(7, 100), (7, None), (list(range(7, 7 + N)), None), (None, None)],
    ids=["one seed", "continued", "seed per instance", "no seed"],
)
def test_vectorized_numpy_face_uses_every_key_once(mode, seed, other):
    seen = Seen()
    play = in_numpy(
        lambda: jaxenvs.make_gym(
            Recorder(), N, autoreset_mode=mode, wrappers=[lambda env: env.wrap(KeyedWrapper, 2)]
        )
    )
    play(seen, seed, other)
    seen.check(N * 5)


@pytest.mark.parametrize("api", ["gymnasium", "gym"])
def test_single_env_numpy_face_uses_every_key_once(api):
    env, seen = jaxenvs.make_gym(Recorder(), api=api), Seen()
    nothing = np.zeros((SLOTS, 2), np.uint32)
    if api == "gym":
        env.seed(3)
    for episode in range(3):
        if api == "gym":
            env.reset()
        else:
            env.reset(seed=3 if episode == 0 else None)
        for _ in range(3):
            observation, *_ = env.step(nothing)
        seen.add(observation)
    env.close()
    seen.check(12)
