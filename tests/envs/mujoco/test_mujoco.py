"""Gymnasium's MuJoCo tasks. tests/parity compares them with Gymnasium's."""

import contextlib
import functools
import inspect

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.envs.mujoco import InvertedPendulum, physics
from jaxenvs.envs.mujoco._mjx import conventions, mjx, mujoco
from jaxenvs.errors import ActionError, ParameterError
from jaxenvs.faces._third_party import make_batch_for, make_env_for
from jaxenvs.faces.gym_env import innermost
from jaxenvs.testing import check_env
from tests.ids import physics_ids

IDS = [id for id in physics_ids() if jaxenvs.registry[id].family == "mujoco"]
SMALL = "InvertedPendulum-v5"
GEOMS = {  # pairs of geoms that touch, not in general position
    "steep capsule": '<geom type="plane" size="1 1 1"/>'
    '<body pos="0 0 .29"><freejoint/><geom type="capsule" size=".1 .2" euler="12 7 40"/></body>',
    "upright capsule": '<geom type="plane" size="1 1 1"/>'
    '<body pos="0 0 .29"><freejoint/><geom type="capsule" size=".1 .2"/></body>',
    "tilted box": '<geom type="plane" size="1 1 1"/>'
    '<body pos="0 0 .19"><freejoint/><geom type="box" size=".1 .3 .2" euler="2 1 40"/></body>',
    "sphere and capsule": '<body pos=".06 .09 .21"><freejoint/><geom size=".1"/></body>'
    '<body><freejoint/><geom type="capsule" size=".1 .2" euler="12 27 40"/></body>',
    "capsule and edge": '<body pos="0 0 .17"><freejoint/><geom type="box" size=".2 .3 .1"/></body>'
    '<body pos=".265 .1 .335"><freejoint/>'
    '<geom type="capsule" size=".1 .2" euler="5 130 10"/></body>',
    "two capsules": '<body pos=".06 .1 .11"><freejoint/>'
    '<geom type="capsule" size=".1 .2" euler="80 0 10"/></body>'
    '<body><freejoint/><geom type="capsule" size=".1 .2" euler="12 27 40"/></body>',
    "two capsules, end to end": '<body pos=".1 .05 .42"><freejoint/>'
    '<geom type="capsule" size=".1 .2" euler="8 20 10"/></body>'
    '<body><freejoint/><geom type="capsule" size=".1 .2" euler="12 27 40"/></body>',
    "box on box": '<body><freejoint/><geom type="box" size=".2 .3 .1" euler="2 1 40"/></body>'
    '<body pos=".1 0 .19"><freejoint/><geom type="box" size=".1 .3 .1"/></body>',
    "crossed edges": '<body><freejoint/><geom type="box" size=".1 .3 .1" euler="4 45 2"/></body>'
    '<body pos=".02 .01 .27"><freejoint/>'
    '<geom type="box" size=".3 .1 .1" euler="45 3 1"/></body>',
}


@contextlib.contextmanager
def usual_promotion():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def contacts_in_c(data):
    """Returns the distances, points, and frames of C MuJoCo's contacts: a list of [13]."""
    return [np.concatenate([[c.dist], c.pos, c.frame]) for c in data.contact]


def contacts_in_mjx(model, qpos):
    """Returns those of MJX's contacts, [n, 13], and their geoms, [n, 2]."""
    there = mjx.put_model(model, impl="jax")
    data = mjx.make_data(there).replace(qpos=qpos)
    found = mjx.collision(there, mjx.kinematics(there, data))._impl.contact
    return jnp.column_stack([found.dist, found.pos, found.frame.reshape(-1, 9)]), found.geom


@functools.cache
def contacts():
    """Returns the contacts of C MuJoCo, of ours, and of plain MJX: {name: [n, 13]} of each.

    One model has all pairs; geoms of different pairs do not collide. Contacts are sorted by
    distance.
    """
    bodies = "".join(
        xml.replace("<geom", f'<geom contype="{1 << i}" conaffinity="{1 << i}"')
        for i, xml in enumerate(GEOMS.values())
    )
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    numbers = {}

    def split(rows, geoms):
        """Returns the rows of each pair that are in contact: as many as in C, which come first."""
        found, pair = {}, model.geom_contype[np.asarray(geoms)[:, 0]]
        for i, name in enumerate(GEOMS):
            of_pair = np.asarray(rows)[pair == 1 << i]
            number = numbers.setdefault(name, len(of_pair))
            found[name] = of_pair[np.argsort(of_pair[:, 0])][:number]
        return found

    def collide(qpos):
        return contacts_in_mjx(model, qpos)

    theirs = split(contacts_in_c(data), data.contact.geom)
    assert all(numbers.values())
    with conventions("float64"):
        ours = split(*jax.jit(collide)(model.qpos0))
    with jax.enable_x64(True), usual_promotion():
        plain = split(*jax.jit(lambda qpos: collide(qpos))(model.qpos0))  # not the program above
    return theirs, ours, plain


@pytest.mark.parametrize("name", GEOMS)
def test_contacts_are_those_of_c_mujoco(name):
    theirs, ours, _ = contacts()
    np.testing.assert_allclose(ours[name], theirs[name], atol=1e-13)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("steep capsule", 0.1),
        ("tilted box", 0.1),
        ("sphere and capsule", 1e-7),
        ("capsule and edge", 1e-7),
        ("two capsules", 1e-7),
        ("box on box", 1e-3),
        ("crossed edges", 1e-3),
    ],
)
def test_plain_mjx_has_other_contacts(name, error):
    # If this fails, the installed MJX is mended: remove our function from `_mjx`.
    theirs, _, plain = contacts()
    assert np.abs(plain[name] - theirs[name]).max() > error


@pytest.mark.parametrize("is_planar", [False, True])
def test_contacts_of_boxes_are_those_of_c_mujoco(is_planar):
    sizes = (".1 .2 .1",) * 2 if is_planar else (".1 .2 .3", ".25 .15 .1")
    bodies = "".join(f'<body><freejoint/><geom type="box" size="{s}"/></body>' for s in sizes)
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    data, generator = mujoco.MjData(model), np.random.default_rng(0)
    places, expected = [], []
    while len(expected) < 300:
        position, rotation = generator.normal(0, 0.12, (2, 3)), generator.normal(size=(2, 4))
        if is_planar:  # as in the stacker: sides touch along their whole width
            position[:, 1], rotation[:, [1, 3]] = 0, 0
        elif generator.random() < 0.3:  # almost aligned
            rotation[1] = rotation[0] + rotation[1] * 10.0 ** generator.integers(-9, 0)
        rotation /= np.linalg.norm(rotation, axis=1, keepdims=True)
        data.qpos[:] = np.concatenate([position, rotation], axis=1).ravel()
        mujoco.mj_forward(model, data)
        if data.ncon:
            places.append(data.qpos.copy())
            expected.append(contacts_in_c(data))
    with conventions("float64"):
        collide = jax.jit(jax.vmap(lambda qpos: contacts_in_mjx(model, qpos)[0]))
        found = np.asarray(collide(np.stack(places)))
    for ours, theirs in zip(found, expected, strict=True):
        ours = ours[ours[:, 0] <= 0]
        assert len(ours) == len(theirs)
        apart = np.abs(ours[:, None] - theirs).max(axis=2)
        assert max(apart.min(axis=0).max(), apart.min(axis=1).max()) < 1e-13
    # Faces overlap in several corners; edges cross in one point.
    assert {len(each) for each in expected} == ({2, 4} if is_planar else {*range(1, 8)})


@pytest.mark.slow
def test_the_line_search_gives_the_bits_of_mjx():
    xml = (
        '<geom type="plane" size="1 1 1"/><body pos="0 0 .08"><freejoint/><geom size=".1"/></body>'
    )
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{xml}</worldbody></mujoco>")

    def simulate(velocity):
        there = mjx.put_model(model, impl="jax")
        data = mjx.make_data(there).replace(qvel=velocity)
        return jax.lax.fori_loop(0, 4, lambda _, data: mjx.step(there, data), data).qvel

    velocities = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    with usual_promotion():
        plain = jax.jit(jax.vmap(simulate))(velocities)
    with conventions("float32"):
        ours = jax.jit(jax.vmap(lambda velocity: simulate(velocity)))(velocities)
    np.testing.assert_array_equal(ours, plain)


@pytest.mark.parametrize("id", IDS)
def test_spaces_are_gymnasiums_for_all_ways_to_observe(id):
    ways = [{}]
    for name in jaxenvs.make(id).parameters:
        if name.startswith(("include_", "exclude_")):
            ways += [{name: False}, {**ways[-1], name: False}]
    for way in ways:
        ours, theirs = jaxenvs.make(id, **way), gymnasium.make(id, **way)
        assert ours.observation_space.shape == theirs.observation_space.shape
        assert ours.action_space == jaxenvs.spaces.from_gymnasium(theirs.action_space)


@pytest.mark.parametrize("id", IDS)
def test_every_option_of_gymnasium_has_its_default(id):
    made = gymnasium.make(id).unwrapped
    options = dict(made._ezpickle_kwargs)
    parameters = inspect.signature(type(made).__init__).parameters
    defaults = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
    defaults |= options
    del defaults["default_camera_config"]
    ours = jaxenvs.make(id).parameters
    for name, value in defaults.items():
        assert ours[name] == value, name


@pytest.mark.slow
def test_changed_physics_change_the_motion_of_each_instance():
    gravity = np.array([[0.0, 0.0, -9.81], [0.0, 0.0, 0.0], [0.0, 0.0, 9.81]])
    env = jaxenvs.make_vec(
        SMALL,
        3,
        engine="mjx",
        batched=["physics"],
        physics={"opt.gravity": gravity},
        reset_noise_scale=0.0,
    )
    key = jax.random.key(0)
    state, _ = jax.device_get(jax.jit(env.reset)(key))
    state = state.replace(inner=state.inner.replace(qpos=np.float32([[0, 0.1]] * 3)))
    own = jax.tree.map(lambda leaf: leaf[2], state.inner)
    step = jax.jit(env.step)
    for _ in range(5):
        state, timestep = step(state, np.zeros((3, 1), np.float32), key)
    angle = np.asarray(timestep.observation)[:, 1]
    assert angle[0] > 0.101 and abs(angle[1] - 0.1) < 1e-6 and angle[2] < 0.099
    alone = jaxenvs.make(SMALL, physics={"opt.gravity": (0.0, 0.0, 9.81)}).unwrapped
    step = jax.jit(alone.step)
    for _ in range(5):
        own, timestep = step(own, np.zeros(1, np.float32), key)
    np.testing.assert_allclose(timestep.observation[1], angle[2], rtol=1e-5)


@pytest.mark.slow
def test_step_can_be_differentiated_forward():
    env = jaxenvs.make(SMALL).unwrapped
    state, _ = jax.jit(env.reset)(jax.random.key(0))

    def angle(action):
        return env.step(state, action[None], jax.random.key(0))[0].qpos[1]

    @jax.jit
    def with_slopes(actions):
        return jax.lax.map(lambda x: jax.jvp(angle, (x,), (jnp.float32(1),)), actions)

    (low, _, high), (_, slope, _) = jax.device_get(with_slopes(np.float32([-0.5, 0.5, 1.5])))
    difference = (high - low) / 2
    np.testing.assert_allclose(slope, difference, rtol=1e-2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"xml_file": "anty.xml"}, "no file .*anty.xml.*Close: .*ant.xml"),
        ({"xml_file": "./none.xml"}, "no file none.xml"),
        ({"frame_skip": 0}, "frame_skip"),
        ({"dtype": "float16"}, 'dtype=.*expected "float32" or "float64"'),
        ({"dtype": "float64"}, "jax_enable_x64"),
        ({"physics": {"gravity": (0, 0, 0)}}, 'no array "gravity".*opt.gravity'),
        ({"physics": {"opt.gravity": 1.0}}, r"shape \[\]; expected \[3\]"),
        ({"physics": {"opt.gravity": np.zeros((2, 2, 3))}}, r"shape \[2, 2, 3\]"),
    ],
)
def test_wrong_parameters_are_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        jaxenvs.make("Ant-v5", **options)


def test_own_model_file_is_loaded(tmp_path):
    path = tmp_path / "heavy.xml"
    path.write_text((physics._assets() / "ant.xml").read_text().replace("5.0", "50.0"))
    assert physics.load(str(path)).body_mass[1] == pytest.approx(
        10 * physics.load("ant.xml").body_mass[1]
    )
    assert jaxenvs.make("Ant-v5", xml_file=str(path)).observation_space.shape == (105,)


def test_actuators_with_a_state_are_refused(tmp_path):
    path = tmp_path / "slow.xml"
    text = (physics._assets() / "inverted_pendulum.xml").read_text()
    path.write_text(text.replace("<motor", '<general dyntype="filter" dynprm="1"'))
    with pytest.raises(ParameterError, match=r'whose actuators have a state.*engine="pool"'):
        jaxenvs.make(SMALL, xml_file=str(path))


def test_actions_are_not_broadcast():
    env = jaxenvs.make("Reacher-v5")
    state, _ = jax.eval_shape(env.reset, jax.random.key(0))
    with pytest.raises(ActionError, match=r"action is float32\[1\], expected float32\[2\]"):
        jax.eval_shape(env.step, state, np.zeros(1, np.float32), jax.random.key(0))


def test_pictures_follow_the_body():
    env = jaxenvs.make("Ant-v5").unwrapped
    state, _ = jax.device_get(jax.jit(env.reset)(jax.random.key(0)))
    far, crooked = np.arange(15) < 2, np.arange(15) >= 7
    draw = jax.jit(env.render)
    here = np.asarray(draw(state))
    there = np.asarray(draw(state.replace(qpos=state.qpos + np.float32(10 * far))))
    bent = np.asarray(draw(state.replace(qpos=state.qpos + np.float32(0.5 * crooked))))
    assert here.shape == (480, 480, 3) and here.dtype == np.uint8
    assert len(np.unique(here.reshape(-1, 3), axis=0)) > 100
    middle = (slice(180, 300), slice(180, 300))
    assert np.abs(here[middle].astype(float) - there[middle]).mean() < 0.1
    assert np.abs(here[middle].astype(float) - bent[middle]).mean() > 1


# Interfaces.


INTERFACES = {
    "make_vec": lambda **params: jaxenvs.make_vec(SMALL, 2, **params),
    "make_gym": lambda **params: jaxenvs.make_gym(SMALL, **params).env,
    "make_gym, batch": lambda **params: jaxenvs.make_gym(SMALL, 2, **params).env,
    "make_dm": lambda **params: jaxenvs.make_dm(SMALL, **params).env,
    "make_dm, batch": lambda **params: jaxenvs.make_dm(SMALL, 2, **params).env,
    "gymnasium": lambda **params: gymnasium.make(f"jaxenvs/{SMALL}", **params).unwrapped.env,
    "gymnasium, batch": lambda **params: gymnasium.make_vec(f"jaxenvs/{SMALL}", 2, **params).env,
    "JaxVecEnv": lambda **params: make_batch_for("JaxVecEnv", "next_step", SMALL, 2, params).env,
    "make_stoa": lambda **params: make_env_for("make_stoa", SMALL, "default", params),
}


@pytest.mark.parametrize("interface", INTERFACES)
def test_every_interface_passes_the_engine_to_the_task(interface):
    make = INTERFACES[interface]
    assert isinstance(innermost(make()), InvertedPendulum)
    assert innermost(make(engine="mjx")).engine == "mjx"


@pytest.mark.parametrize("id", [SMALL, f"gymnasium/{SMALL}"])
def test_pools_host_gymnasiums_own_task(id):
    expected, _ = gymnasium.make(SMALL).reset(seed=3)
    with jaxenvs.make_pool(id, 1, backend="serial") as pool:
        np.testing.assert_array_equal(pool.reset(seed=3)[0][0], expected)


def play(env, steps=12):
    """Returns observations, rewards, and flags of an environment without noise at the start."""
    state, timestep = jax.jit(env.reset)(jax.random.key(0))
    step, shown = jax.jit(env.step), [timestep]
    actions = np.random.default_rng(0).uniform(
        env.action_space.low, env.action_space.high, (steps, *env.action_space.shape)
    )
    for i, action in enumerate(actions.astype(np.float32)):
        state, timestep = step(state, action, jax.random.key(i))
        shown.append(timestep)
    return [
        (t.observation, t.final_observation, t.reward, t.terminated, t.truncated) for t in shown
    ]


@pytest.mark.parametrize(
    ("id", "mode"),
    [
        pytest.param(SMALL, "same_step", marks=pytest.mark.slow),
        ("Swimmer-v5", "same_step"),  # its reward is a velocity
        pytest.param("Hopper-v5", "next_step", marks=pytest.mark.slow),
        pytest.param("Ant-v5", "same_step", marks=pytest.mark.slow),
    ],
)
def test_batches_agree_with_those_of_gymnasiums_own_task(id, mode):
    how = {"autoreset_mode": mode, "reset_noise_scale": 0.0}
    native = jaxenvs.make_vec(id, 2, **how)
    hosted = jaxenvs.make_vec(f"gymnasium/{id}", 2, num_workers=1, **how)
    try:
        assert native.single_observation_space == hosted.single_observation_space
        assert native.single_action_space == hosted.single_action_space
        for ours, theirs in zip(play(native), play(hosted), strict=True):
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)
    finally:
        hosted.close()


@pytest.mark.slow
def test_hopper_passes_check_env():
    check_env(jaxenvs.make("Hopper-v5"))
