import copy
import functools
import pickle

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs import struct
from jaxenvs.core import Environment
from jaxenvs.envs.classic_control.cartpole import CartPole
from jaxenvs.errors import RandomKeyError, UnknownParameterError
from jaxenvs.training import GAE, PPO, ActorCritic
from jaxenvs.wrappers import TimeLimit, TransformReward


def twin():
    @struct.pytree_dataclass
    class Twin:
        speed: float = 1.0
        size: int = struct.static(8)

    return Twin


def test_trees_of_two_classes_with_like_fields_differ():
    one, other = twin(), twin()
    assert jax.tree.structure(one()) == jax.tree.structure(one(speed=2.0))
    assert jax.tree.structure(one()) != jax.tree.structure(other())
    assert jax.tree.structure(one()) != jax.tree.structure(one(size=9))


def test_leaves_carry_field_names_and_exclude_static_fields():
    cls = twin()
    (((key,), leaf),) = jax.tree_util.tree_leaves_with_path(cls(speed=3.0))
    assert key == jax.tree_util.GetAttrKey("speed") and leaf == 3.0
    doubled = jax.tree.map(lambda x: 2 * x, cls(speed=3.0, size=5))
    assert type(doubled) is cls and doubled.speed == 6.0 and doubled.size == 5


def test_class_from_cloudpickle_keeps_its_leaves(monkeypatch):
    class Windy(CartPole):
        wind: float = 2.0
        size: int = struct.static(8)

        def reset(self, key):
            return super().reset(key)

    data = cloudpickle.dumps(Windy(wind=3.0, size=5))
    # In another process the class does not exist yet.
    tracker = cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID
    monkeypatch.setattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", type(tracker)())
    found = pickle.loads(data)
    assert type(found) is not Windy and jax.tree.leaves(found)[-1] == 3.0
    doubled = jax.tree.map(lambda x: 2 * x, found)
    assert (doubled.wind, doubled.size) == (6.0, 5)
    with pytest.raises(RandomKeyError):
        jax.eval_shape(found.reset, 0)
    assert jax.eval_shape(found.reset, jax.random.key(0))[1].reward.shape == ()


# Parameters without an annotation


@pytest.mark.parametrize(
    ("base", "body", "fix"),
    [
        (CartPole, {"gravity": 1.6}, "gravity: float = 1.6"),
        (CartPole, {"gravity": 2}, "gravity: float = 2"),
        (CartPole, {"kinematics_integrator": "euler"}, r"= struct.static\('euler'\)"),
        (CartPole, {"GRAVITY": 1.6, "gravity": property(lambda self: 1.6)}, "gravity: float"),
        (CartPole, {"wind": 3.0}, "wind: float = 3.0, or wind: ClassVar = 3.0"),
        (TimeLimit, {"time_limit": 9}, "time_limit: int = 9"),
        (TransformReward, {"func": lambda self, reward: -reward}, "func: Callable = struct.static"),
        (PPO, {"gamma": 0.9}, "gamma: float = 0.9"),
        (GAE, {"discount": 0.9}, "discount: float = 0.9"),
        (ActorCritic, {"hidden_sizes": (32,)}, r"hidden_sizes: .* = \(32,\)"),
        (twin(), {"speed": 2.0}, "speed: float = 2.0"),
    ],
)
def test_value_without_annotation_is_refused(base, body, fix):
    with pytest.raises(UnknownParameterError, match=f"Own sets .* without an annotation.*{fix}"):
        struct.pytree_dataclass(type(base)("Own", (base,), body))


def test_annotated_value_overrides_the_inherited_default():
    class Moon(CartPole):
        gravity: float = 1.6
        wind: float = 3.0

    assert (Moon().gravity, Moon().replace(wind=4.0).wind) == (1.6, 4.0)


def test_class_variables_and_constants_need_no_annotation():
    class Plain(Environment):
        LEFT, RIGHT = 0, 1
        _cache = None
        inner_parameters = None
        agents = ("a", "b")
        action_space = observation_space = None
        helper = max

        def reset(self, key): ...

        def step(self, state, action, key): ...

    assert Plain().agents == ("a", "b") and jax.tree.leaves(Plain()) == []


@pytest.mark.parametrize(
    ("cls", "name", "closest"),
    [(PPO, "lr", "learning_rate"), (PPO, "gama", "gamma"), (CartPole, "gravty", "gravity")],
)
def test_misspelled_argument_of_a_constructor_names_the_closest(cls, name, closest):
    words = f'{cls.__name__} has no parameter "{name}".  Close: "{closest}".*It has: '
    for make in (cls, cls().replace):
        with pytest.raises(UnknownParameterError, match=words):
            make(**{name: 1.0})
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        TimeLimit(CartPole())


# Equality


def test_instances_are_equal_by_value():
    make, box = twin(), struct.pytree_dataclass(type("Box", (), {"__annotations__": {"x": object}}))
    assert make(speed=2.0) == make(speed=2.0) and hash(make(speed=2.0)) == hash(make(speed=2.0))
    assert make() != make(speed=2.0) and make() != make(size=9) and make() != twin()()
    values = [
        *(1, 1.0, True, 0.0, -0.0, None, "1", np.float32(1), np.float64(1)),
        *(np.ones(2), np.zeros(2), np.ones((2, 1)), np.ones(2, np.float32)),
        *(jnp.ones(2), jnp.zeros(2), jnp.float32(1), jnp.asarray(1.0), jnp.int32(1)),
        *((1, 1.0), {"a": 1.0}, {"b": 1.0}, float("nan")),
    ]
    for i, value in enumerate(values):
        for j, other in enumerate(values):
            one, copied = box(value), box(copy.deepcopy(other))
            assert (one == copied) == (i == j), (value, other)
            assert i != j or hash(one) == hash(copied)


def test_environments_with_equal_values_share_a_compiled_program():
    traces = []

    @functools.partial(jax.jit, static_argnums=0)
    def limit(env):
        traces.append(env)
        return jnp.int32(env.time_limit)

    for number in (3, 3, 4, 3):
        assert limit(TimeLimit(CartPole(), time_limit=number)) == number
    assert len(traces) == 2


def test_traced_leaves_are_equal_only_to_themselves():
    @jax.jit
    def compare(one, other):
        first, second = CartPole(gravity=one), CartPole(gravity=other)
        assert first == CartPole(gravity=one) and first != second and first != CartPole()
        return one

    compare(9.8, 9.8)
