import jax

from jaxenvs import struct


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
