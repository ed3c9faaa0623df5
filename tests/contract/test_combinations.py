"""Every environment class and every wrapper, combined with all options of a batch.

Each subject runs once in a reference program and once per setting. The results must agree. The
subjects come from the registry and from the table of wrappers, so new entries are tested too.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

import jaxenvs
from jaxenvs import struct
from jaxenvs.core import Environment, TimeStep
from tests.ids import case, every_nth, one_id_per_class
from tests.opaque import OpaqueVectorEnv
from tests.rounding import assert_agree
from tests.wrappers.test_all import CHAINS, Toy, wrap

N, LIMIT = 8, 3
MODES = ("same_step", "next_step", "disabled")
KINDS = ("Auto", "Explicit")


@dataclasses.dataclass(frozen=True)
class Subject:
    """An environment, and the wrappers to apply to a batch of it."""

    name: str
    env: Environment
    around: tuple[str, ...] = ()  # names of the wrappers
    opaque: bool = False  # whether to hide the instances from the wrappers

    def batch(self, **how):
        batch = jaxenvs.vectorize(self.env, N, **how)
        return wrap(OpaqueVectorEnv(batch) if self.opaque else batch, self.around)


class Optional(Toy):
    """An environment with parameters that are None or trees."""

    offset: float | None = None
    pair: tuple = (0.5, {"deep": 2.0})

    def step(self, state, action, key):
        first, rest = self.pair
        state, timestep = super().step(state, action * first * rest["deep"], key)
        return state, timestep


def subjects():
    for id in one_id_per_class():
        yield Subject(id, jaxenvs.make(id, time_limit=LIMIT))
    yield Subject("optional parameters", Optional())
    for name, (inner, outer) in CHAINS.items():
        # Once with accessible instances, once with a batch that hides them.
        yield Subject(f"{name}, accessible", Toy(), (*inner, *outer))
        yield Subject(f"{name}, opaque", wrap(Toy(), inner), tuple(outer), opaque=True)


SUBJECTS = {subject.name: subject for subject in subjects()}


def play(env, keys):
    """Resets, steps four times, and resets three instances before the last step: [4, N, ...]."""
    reset_key, *rest = keys

    def step(carry, given):
        some, some_key, step_key = given
        state, shown = env.reset_where(some, *carry, some_key)
        actions = jax.vmap(env.single_action_space.sample)(jax.random.split(jax.random.key(11), N))
        state, timestep = env.step(state, actions, step_key)
        return (state, timestep), (shown, timestep)

    some = np.zeros((4, N), bool)
    some[-1, :3] = True
    stacked = (jnp.stack(rest[::2]), jnp.stack(rest[1::2]))
    return jax.lax.scan(step, env.reset(reset_key), (jnp.asarray(some), *stacked))[1]


def keys_of(key):
    return [jax.random.fold_in(key, i) for i in range(9)]


ONE = keys_of(jax.random.key(3))
EACH = [jax.random.split(key, N) for key in ONE]
RAW = keys_of(jax.random.PRNGKey(3))
RBG = keys_of(jax.random.key(3, impl="rbg"))


def run(env, keys=ONE):
    return jax.device_get(jax.jit(play)(env, keys))


@functools.cache
def reference(name, mode):
    return run(SUBJECTS[name].batch(autoreset_mode=mode))


def mesh_of(kind):
    return jax.make_mesh((8,), ("env",), axis_types=(AxisType[kind],))


def index_of(name):
    return list(SUBJECTS).index(name)


def mode_for(name):
    """Returns one of the modes, in rotation."""
    return MODES[index_of(name) % 3]


def kind_for(name, mode):
    """Returns a kind of mesh, in rotation, so that each meets every subject and every mode."""
    return KINDS[(index_of(name) + MODES.index(mode)) % 2]


def is_quick(name, mode):
    """Returns whether a case is quick: other subjects are quick in the tests below."""
    return mode == mode_for(name) and index_of(name) % 8 == 5


@pytest.mark.parametrize(
    ("name", "mode"),
    [case(name, mode, is_quick=is_quick(name, mode)) for name in SUBJECTS for mode in MODES],
)
def test_mesh_gives_the_same_results_in_every_mode(name, mode):
    env = SUBJECTS[name].batch(autoreset_mode=mode, mesh=mesh_of(kind_for(name, mode)))
    assert_agree(run(env), reference(name, mode))


@pytest.mark.parametrize("name", every_nth(8, SUBJECTS))
def test_raw_keys_chunks_and_debug_nans_change_nothing(name):
    mode = mode_for(name)
    env = SUBJECTS[name].batch(autoreset_mode=mode, reset_chunk=1 if mode == "next_step" else N)
    with jax.debug_nans(True):
        assert_agree(run(env, RAW), reference(name, mode))


@pytest.mark.parametrize("name", every_nth(8, SUBJECTS, first=7))
def test_rbg_and_per_instance_keys_with_mesh_and_chunk(name):
    subject, mode = SUBJECTS[name], mode_for(name)
    keys = (RBG, EACH)[index_of(name) % 2]
    alone = run(subject.batch(autoreset_mode=mode), keys)
    sharded = run(subject.batch(autoreset_mode=mode, reset_chunk=1, mesh=mesh_of("Auto")), keys)
    assert_agree(sharded, alone)


@pytest.mark.parametrize("name", every_nth(8, SUBJECTS))
def test_results_are_the_same_under_x64(name):
    mode = mode_for(name)
    with jax.enable_x64(True):
        found = run(SUBJECTS[name].batch(autoreset_mode=mode))
    # A float64 intermediate result would round differently.
    assert_agree(found, reference(name, mode), tolerance=1e-4)


def parameters_of(env):
    """Returns the names of the parameters that can differ between instances."""
    return [
        name
        for name, value in env.parameters.items()
        if jax.tree.leaves(value)
        and all(isinstance(leaf, int | float) for leaf in jax.tree.leaves(value))
        and not isinstance(value, bool)
        and name not in static_names(env)
    ]


def static_names(env):
    names = set()
    while env is not None:
        names |= {field.name for field in dataclasses.fields(env) if struct.is_static(field)}
        env = getattr(env, "env", None)
    return names


@pytest.mark.parametrize("name", every_nth(8, SUBJECTS, first=2))
def test_equal_batched_parameters_match_one_shared_value(name):
    subject, sharded, mode = SUBJECTS[name], (*KINDS, None)[index_of(name) % 3], mode_for(name)
    names = parameters_of(subject.env)
    if not names:
        pytest.skip("no numeric parameters")
    values = subject.env.parameters
    each = {n: jax.tree.map(lambda leaf: jnp.full(N, leaf), values[n]) for n in names}
    mesh = None if sharded is None else mesh_of(sharded)
    batched = dataclasses.replace(subject, env=subject.env.replace(**each))
    found = run(batched.batch(autoreset_mode=mode, batched=names, mesh=mesh))
    assert_agree(found, reference(name, mode))


@pytest.mark.parametrize("name", every_nth(40, SUBJECTS, first=4))
def test_vmap_over_a_staggered_batch(name):
    subject = SUBJECTS[name]
    mode = MODES[index_of(name) % 2]
    env = subject.batch(autoreset_mode=mode, stagger=2)
    assert env.is_staggered and not subject.batch().is_staggered
    others = keys_of(jax.random.key(4))
    stacked = [jnp.stack(both) for both in zip(ONE, others, strict=True)]
    mapped = jax.device_get(jax.jit(jax.vmap(play, in_axes=(None, 0)))(env, stacked))
    alone = run(env, ONE), run(env, others)
    assert_agree(mapped, jax.tree.map(lambda *xs: np.stack(xs), *alone), tolerance=1e-4)


class InfoCounter(Environment):
    """An environment whose info contains the step count of the episode."""

    @property
    def observation_space(self):
        return jaxenvs.spaces.Box(0.0, 10.0, (1,))

    @property
    def action_space(self):
        return jaxenvs.spaces.Discrete(2)

    def reset(self, key):
        count = jnp.int32(0)
        return count, TimeStep.first(jnp.zeros(1, jnp.float32), info={"count": count})

    def step(self, state, action, key):
        count = state + 1
        observation = count.astype(jnp.float32)[None]
        return count, TimeStep.transition(
            observation, reward=0.0, terminated=count >= 2, info={"count": count}
        )


@pytest.mark.parametrize("opaque", [False, True])
def test_info_belongs_to_the_new_episode(opaque):
    env = jaxenvs.vectorize(InfoCounter(), 2)
    if opaque:
        env = OpaqueVectorEnv(env).wrap(jaxenvs.wrappers.RecordEpisodeStatistics)

    @jax.jit
    def play(key):
        state, _ = env.reset(key)
        actions = jnp.zeros((4, 2), jnp.int32)
        return jax.lax.scan(lambda state, action: env.step(state, action, key), state, actions)[1]

    timestep = jax.device_get(play(jax.random.key(0)))
    for name in ("count", "episode_length") if opaque else ("count",):
        assert timestep.info[name][:, 0].tolist() == [1, 0, 1, 0]
        assert timestep.final_info[name][:, 0].tolist() == [1, 2, 1, 2]
