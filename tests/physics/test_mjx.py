"""MJX as an engine: its functions that jaxenvs replaces."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from jaxenvs.physics.mjx_functions import conventions, mjx

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
