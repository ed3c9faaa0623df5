"""C MuJoCo as a pure function. The certificates compare whole tasks with their originals."""

import copy
import functools
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxenvs
from jaxenvs.errors import ParameterError
from jaxenvs.physics import c, models

# A ball that falls onto a plane and pushes a box: contacts, a motor, a tendon, a mocap body.
XML = """
<mujoco>
  <option timestep="0.01" integrator="RK4"/>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body name="ball" pos="0 0 .15"><freejoint/><geom size=".1" mass="1"/></body>
    <body name="box" pos=".3 0 .1"><joint name="slide" type="slide" axis="1 0 0"/>
      <geom type="box" size=".1 .1 .1" mass="2"/></body>
  </worldbody>
  <tendon><fixed name="rope"><joint joint="slide" coef="1"/></fixed></tendon>
  <actuator><motor joint="slide" gear="5"/><motor tendon="rope"/></actuator>
</mujoco>
"""
FIELDS = ("cfrc_ext", "qacc", "qpos", "qvel", "ten_length", "xpos")
N = 6


@functools.cache
def model():
    return mujoco.MjModel.from_xml_string(XML)


def plan(**options):
    options = {"dtype": "float32", "fields": FIELDS, "precise": (), "steps": 3, **options}
    return models.Plan(original=model(), refreshes=False, **options)


def begin(plan, changes, qvel):
    found = c.start(plan, changes, jnp.asarray(model().qpos0, plan.dtype), qvel)
    return found, State(found.data.qpos, found.data.qvel, found.kept)


class State:
    def __init__(self, qpos, qvel, kept):
        self.qpos, self.qvel, self.kept = qpos, qvel, kept


jax.tree_util.register_pytree_node(
    State, lambda s: ((s.qpos, s.qvel, s.kept), None), lambda _, parts: State(*parts)
)


def roll(plan, changes, qvel, controls):
    """Returns the fields after every step: {name: [T, ...]}."""

    def step(state, control):
        found = c.step(plan, changes, state, control)
        fields = {name: getattr(found.data, name) for name in plan.fields}
        return State(found.data.qpos, found.data.qvel, found.kept), fields

    return jax.lax.scan(step, begin(plan, changes, qvel)[1], controls)[1]


def inputs(*shape):
    random = np.random.default_rng(0)
    return (
        random.normal(size=(*shape, 7)).astype(np.float32),
        random.uniform(-1, 1, (*shape, 20, 2)).astype(np.float32),
    )


def reference(qvel, controls, changed=None, steps=3):
    """Returns the fields of `mj_step` in a loop, in double precision."""
    own = changed or model()
    data = mujoco.MjData(own)
    data.qvel[:] = qvel
    mujoco.mj_forward(own, data)
    rows = []
    for control in controls:
        data.ctrl[:] = control
        mujoco.mj_step(own, data, steps)
        mujoco.mj_rnePostConstraint(own, data)
        rows.append({name: getattr(data, name).copy() for name in FIELDS})
    return {name: np.stack([row[name] for row in rows]) for name in FIELDS}


def use(callback, monkeypatch):
    if callback:
        monkeypatch.setattr(c, "_runner", lambda call: functools.partial(c._run_by_callback, call))


def assert_same(found, expected):
    for name in FIELDS:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def test_steps_equal_those_of_a_loop_to_the_bit():
    qvel, controls = inputs(N)
    with jax.enable_x64(True):
        run = jax.jit(jax.vmap(lambda v, u: roll(plan(dtype="float64"), {}, v, u)))
        found = run(qvel.astype(float), controls.astype(float))
    for i in range(N):
        expected = reference(qvel[i].astype(float), controls[i].astype(float))
        assert expected["cfrc_ext"].any()  # it touches
        assert_same({name: found[name][i] for name in FIELDS}, expected)


@functools.cache
def expected():
    """Returns the fields of single instances in single precision: {name: [N, T, ...]}."""
    qvel, controls = inputs(N)
    alone = jax.jit(lambda v, u: roll(plan(), {}, v, u))
    rows = [jax.device_get(alone(v, u)) for v, u in zip(qvel, controls, strict=True)]
    return {name: np.stack([row[name] for row in rows]) for name in FIELDS}


def test_state_is_in_double_precision_without_x64():
    qvel, controls = inputs(N)
    for i in range(N):
        double = reference(qvel[i].astype(float), controls[i].astype(float))
        for name in FIELDS:
            np.testing.assert_array_equal(expected()[name][i], double[name].astype(np.float32))


def test_vmap_of_any_depth_gives_the_same():
    qvel, controls = inputs(N)
    run = jax.vmap(jax.vmap(lambda v, u: roll(plan(), {}, v, u)))
    found = jax.jit(run)(qvel.reshape(2, 3, 7), controls.reshape(2, 3, 20, 2))
    assert_same(jax.tree.map(lambda x: x.reshape(N, *x.shape[2:]), found), expected())
    moved = jax.vmap(lambda v, u: roll(plan(), {}, v, u), in_axes=(1, 2), out_axes=1)
    found = jax.jit(moved)(qvel.T, np.moveaxis(controls, 0, 2))
    assert_same(jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), found), expected())
    shared = jax.vmap(lambda v, u: roll(plan(), {}, v, u), in_axes=(None, 0))
    found = jax.jit(shared)(qvel[0], controls)
    np.testing.assert_array_equal(found["qpos"][0], expected()["qpos"][0])


def test_the_callback_gives_the_same_bits(monkeypatch):
    use(True, monkeypatch)
    qvel, controls = inputs(N)
    found = jax.jit(jax.vmap(lambda v, u: roll(plan(), {}, v, u)))(qvel, controls)
    assert_same(found, expected())


def test_threads_give_the_same_bits():
    qvel, controls = inputs(N)
    for count in (1, 3):
        run = jax.jit(jax.vmap(lambda v, u, n=count: roll(plan(num_threads=n), {}, v, u)))
        assert_same(run(qvel, controls), expected())


def test_programs_in_two_threads_at_once_give_the_same():
    qvel, controls = inputs(N)
    run = jax.jit(jax.vmap(lambda v, u: roll(plan(), {}, v, u)))
    run(qvel, controls)
    found = []

    def repeat():
        found.extend(jax.device_get(run(qvel, controls)) for _ in range(10))

    threads = [threading.Thread(target=repeat) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 30
    for each in found:
        assert_same(each, expected())


def on_devices(number, axis_type=AxisType.Auto):
    mesh = jax.make_mesh((number,), ("d",), axis_types=(axis_type,))
    return mesh, NamedSharding(mesh, PartitionSpec("d"))


@pytest.mark.skipif(jax.device_count() < 2, reason="needs two devices")
def test_a_sharded_batch_under_jit_is_divided():
    _, sharding = on_devices(2)
    qvel, controls = jax.device_put(inputs(N), sharding)
    run = jax.jit(jax.vmap(lambda v, u: roll(plan(), {}, v, u)))
    text = run.lower(qvel, controls).compile().as_text()
    calls = [line for line in text.splitlines() if 'custom_call_target="jaxenvs_physics"' in line]
    assert calls and all(f"u32[{N // 2}," in line for line in calls)
    found = run(qvel, controls)
    assert found["qpos"].sharding.spec[0] == "d"
    assert_same(found, expected())


@pytest.mark.skipif(jax.device_count() < 2, reason="needs two devices")
@pytest.mark.parametrize("check_vma", [False, True])
def test_shard_map_gives_the_same(check_vma):
    mesh, _ = on_devices(2)
    spec = PartitionSpec("d")
    run = jax.shard_map(
        jax.vmap(lambda v, u: roll(plan(), {}, v, u)),
        mesh=mesh,
        in_specs=spec,
        out_specs=spec,
        check_vma=check_vma,
    )
    assert_same(jax.jit(run)(*inputs(N)), expected())


def test_changed_positions_of_a_state_count():
    _, state = begin(plan(), {}, jnp.zeros(7))
    moved = State(state.qpos.at[0].add(0.5), state.qvel.at[2].set(3.0), state.kept)
    step = jax.jit(lambda s: c.step(plan(), {}, s, jnp.zeros(2)).data.qpos)
    there, here = step(moved), step(state)
    assert there[0] - here[0] == pytest.approx(0.5, abs=1e-6)
    assert there[2] - here[2] == pytest.approx(0.09, abs=1e-2)


CHANGES = {
    "opt.gravity": np.array([[0, 0, -9.81], [0, 0, -3.0], [1, 0, -9.81]]),
    "body_mass": np.array([[0, 1, 2], [0, 3, 2], [0, 1, 0.5]]),
    "geom_size": np.array([0.5, 1, 1.5])[:, None, None]
    * np.array([[5, 5, 1], [0.1] * 3, [0.1] * 3]),
    "dof_armature": np.array([0, 0.5, 1])[:, None] * np.ones(7),
    "actuator_gear": np.array([1, 2, 3])[:, None, None] * np.ones((2, 6)),
    "geom_friction": np.array([1, 0.2, 0])[:, None, None] * np.ones((3, 3)),
}


@pytest.mark.parametrize("is_callback", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_changed_arrays_equal_a_changed_model(name, is_callback, monkeypatch):
    use(is_callback, monkeypatch)
    qvel, controls = (x[:3].astype(float) for x in inputs(N))
    with jax.enable_x64(True):
        there = plan(dtype="float64", physics=(name,))
        run = jax.jit(jax.vmap(lambda x, v, u: roll(there, {name: x}, v, u)))
        found = jax.device_get(run(CHANGES[name], qvel, controls))
    for i in range(3):
        changed = copy.copy(model())
        owner = changed.opt if name.startswith("opt.") else changed
        getattr(owner, name.removeprefix("opt."))[:] = CHANGES[name][i]
        mujoco.mj_setConst(changed, mujoco.MjData(changed))
        own = {field: found[field][i] for field in FIELDS}
        assert_same(own, reference(qvel[i], controls[i], changed))


def test_a_start_that_is_simulated_has_the_changed_model():
    pytest.importorskip("dm_control")
    with jax.enable_x64(True):
        env = jaxenvs.make("dm_control/cheetah-run", dtype="float64").unwrapped
        masses = 1.3 * env._original.body_mass
        env = env.replace(physics={"body_mass": masses})
        key = jax.random.key(3)
        state, _ = jax.jit(env.reset)(key)
        changed = copy.copy(env._original)
        changed.body_mass[:] = masses
        data = mujoco.MjData(changed)
        mujoco.mj_setConst(changed, data)
        mujoco.mj_resetData(changed, data)
        is_limited = changed.jnt_limited.astype(bool)
        data.qpos[:] = np.where(is_limited, env._random_joints(key), env._qpos0)
        for _ in range(200):
            mujoco.mj_step(changed, data)
        np.testing.assert_array_equal(state.qpos, data.qpos)
        np.testing.assert_array_equal(state.qvel, data.qvel)


@pytest.mark.parametrize("is_callback", [False, True])
def test_each_instance_has_its_own_terrain(is_callback, monkeypatch):
    use(is_callback, monkeypatch)
    hills = mujoco.MjModel.from_xml_string(
        """
        <mujoco>
          <asset><hfield name="hills" nrow="5" ncol="5" size="1 1 1 .1"/></asset>
          <worldbody>
            <geom type="hfield" hfield="hills"/>
            <body pos=".1 .2 .5"><freejoint/><geom size=".1"/></body>
          </worldbody>
        </mujoco>
        """
    )
    fall = models.Plan(hills, "float32", ("qpos", "qvel"), (), steps=60, refreshes=False)
    heights = np.random.default_rng(0).uniform(0, 1, (N, 25)).astype(np.float32)

    @jax.jit
    @jax.vmap
    def land(heights):
        changes, qvel = {"hfield_data": heights}, jnp.zeros(6)
        begun = c.start(fall, changes, jnp.asarray(hills.qpos0, jnp.float32), qvel)
        state = State(begun.data.qpos, begun.data.qvel, begun.kept)
        return c.step(fall, changes, state, jnp.zeros(0)).data.qpos

    places = land(heights)
    assert len(np.unique(places[:, 2])) == N
    for place, own in zip(places, heights, strict=True):
        changed = copy.copy(hills)
        changed.hfield_data[:] = own
        data = mujoco.MjData(changed)
        mujoco.mj_forward(changed, data)
        mujoco.mj_step(changed, data, 60)
        np.testing.assert_array_equal(place, np.float32(data.qpos))


@pytest.mark.parametrize("is_callback", [False, True])
def test_a_diverged_simulation_stays_where_it_was(is_callback, monkeypatch, tmp_path, capfd):
    monkeypatch.chdir(tmp_path)
    use(is_callback, monkeypatch)
    _, state = begin(plan(), {}, jnp.zeros(7))
    fast = jnp.stack([state.qvel, state.qvel.at[0].set(1e12), state.qvel])
    states = State(jnp.stack([state.qpos] * 3), fast, jnp.stack([state.kept] * 3))

    def fields(state, control):
        found = c.step(plan(), {}, state, control)
        return {name: getattr(found.data, name) for name in FIELDS} | {"diverged": found.diverged}

    controls = jnp.array([[0.0, 0], [0, 0], [np.nan, 0]])
    found = jax.device_get(jax.jit(jax.vmap(fields))(states, controls))
    assert found["diverged"].tolist() == [False, True, True]
    np.testing.assert_array_equal(found["qpos"][1], state.qpos)
    np.testing.assert_array_equal(found["qpos"][2], state.qpos)
    assert found["qpos"][0, 2] < state.qpos[2]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))
    assert not Path("MUJOCO_LOG.TXT").exists() or is_callback
    assert "WARNING" not in "".join(capfd.readouterr()) or is_callback


def test_state_survives_a_checkpoint_and_continues_to_the_bit(tmp_path):
    env = jaxenvs.make("InvertedPendulum-v5").unwrapped
    step = jax.jit(env.step)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    action = np.ones(1, np.float32)
    for _ in range(3):
        state, _ = step(state, action, jax.random.key(0))
    leaves, treedef = jax.tree.flatten(state)
    np.savez(tmp_path / "state.npz", *leaves)
    saved = np.load(tmp_path / "state.npz")
    restored = jax.tree.unflatten(treedef, [saved[name] for name in saved.files])
    for _ in range(3):
        state, _ = step(state, action, jax.random.key(0))
        restored, _ = step(restored, action, jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, state, restored)


def test_program_of_another_process_needs_its_model(tmp_path):
    make = """
        import sys, jax, jaxenvs, numpy as np
        from jax.experimental import serialize_executable
        import pickle
        def make():
            env = jaxenvs.make("InvertedPendulum-v5").unwrapped
            return env, jax.jit(env.reset)(jax.random.key(0))[0]
    """
    save = """
        env, state = make()
        program = jax.jit(lambda s, a: env.step(s, a, jax.random.key(0))[0].qpos)
        compiled = program.lower(state, np.ones(1, np.float32)).compile()
        kept = *serialize_executable.serialize(compiled), jax.device_get(state)
        pickle.dump(kept, open(sys.argv[1], "wb"))
        print(compiled(state, np.ones(1, np.float32)).tolist())
    """
    load = """
        from jaxenvs.physics import c
        c._target()
        *parts, state = pickle.load(open(sys.argv[1], "rb"))
        program = serialize_executable.deserialize_and_load(*parts)
        try:
            program(state, np.ones(1, np.float32))
        except jax.errors.JaxRuntimeError as error:
            assert "Make the environment" in str(error), error
            make()
        print(program(state, np.ones(1, np.float32)).tolist())
    """
    said = [
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(make) + textwrap.dedent(part), tmp_path / "x"],
            capture_output=True,
            text=True,
            timeout=100,
            env=os.environ | {"XLA_FLAGS": ""},
        )
        for part in (save, load)
    ]
    assert not said[1].returncode, said[1].stderr[-2000:]
    assert said[0].stdout == said[1].stdout != ""


def test_what_the_engine_lacks_is_refused():
    with pytest.raises(ParameterError, match=r'"c" does not compute qfrc_inverse'):
        begin(plan(fields=("qfrc_inverse", "qpos", "qvel")), {}, jnp.zeros(7))
    with pytest.raises(ParameterError, match=r"engine='gpu'.*expected 'c', 'mjx'"):
        jaxenvs.make("Ant-v5", engine="gpu")
    with pytest.raises(ParameterError, match=r'on_divergence="raise".*engine="mjx".*"c"'):
        jaxenvs.make("Ant-v5", engine="mjx", on_divergence="raise")
    with pytest.raises(ParameterError, match='no array "hfield_data"'):
        jaxenvs.make("Ant-v5", physics={"hfield_data": np.zeros(1)})


def test_divergence_raises_if_asked():
    there = plan(raises=True)
    _, state = begin(there, {}, jnp.zeros(7).at[0].set(1e12))
    with pytest.raises(jax.errors.JaxRuntimeError, match="instance 0 diverged"):
        jax.block_until_ready(
            jax.jit(lambda s: c.step(there, {}, s, jnp.zeros(2)).data.qpos)(state)
        )


def end(there, qpos, qvel, controls, kept):
    """Returns positions and places of bodies after steps, a function with derivatives."""

    def step(carry, control):
        found = c.step(there, {}, State(*carry), control)
        return (found.data.qpos, found.data.qvel, found.kept), found.data.xpos

    (qpos, _, _), places = jax.lax.scan(step, (qpos, qvel, kept), controls)
    return jnp.concatenate([qpos, places[-1].reshape(-1)])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_derivatives_equal_differences_in_double(dtype):
    qvel, controls = (x[0][..., :3, :] if x.ndim > 2 else x[0] for x in inputs(N))
    with jax.enable_x64(dtype == "float64"):
        there = plan(dtype=dtype, derivatives="finite")
        qvel, controls = jnp.asarray(qvel, dtype), jnp.asarray(controls, dtype)
        _, state = begin(there, {}, qvel)
        run = functools.partial(end, there)
        given = state.qpos, state.qvel, controls, state.kept
        forward = jax.jit(jax.jacfwd(run, argnums=(0, 1, 2)))(*given)
        backward = jax.jit(jax.jacrev(run, argnums=(0, 1, 2)))(*given)
    for ours, other in zip(forward, backward, strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-3, atol=1e-4)
    with jax.enable_x64(True):
        exact = functools.partial(end, plan(dtype="float64"))
        double = [jnp.asarray(x, float) for x in given[:3]]
        random = np.random.default_rng(1)
        ways = [1e-6 * random.normal(size=x.shape) for x in double]
        ends = [
            exact(*[x + sign * way for x, way in zip(double, ways, strict=True)], state.kept)
            for sign in (1, -1)
        ]
        slope = sum(
            np.tensordot(np.asarray(part, float), way, way.ndim)
            for part, way in zip(forward, ways, strict=True)
        )
    np.testing.assert_allclose(slope, np.subtract(*ends) / 2, rtol=1e-3, atol=1e-10)


def test_derivatives_are_an_error_unless_asked_for():
    _, state = begin(plan(), {}, jnp.zeros(7))

    def height(there, qvel, gravity=0.0):
        moved = State(state.qpos, qvel, state.kept)
        changes = {"opt.gravity": jnp.stack([0.0, 0.0, gravity])}
        return c.step(there, changes, moved, jnp.zeros(2)).data.qpos[2]

    with pytest.raises(ParameterError, match=r'derivatives="finite"'):
        jax.grad(functools.partial(height, plan()))(jnp.zeros(7))
    there = plan(derivatives="finite")
    with pytest.raises(ParameterError, match="by arrays of the model"):
        jax.grad(functools.partial(height, there, jnp.zeros(7)))(-9.81)
