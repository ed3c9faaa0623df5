import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs import spaces
from jaxenvs.errors import TrainingError
from jaxenvs.training.extractors import (
    MLP,
    DictExtractor,
    FixupCNN,
    ImpalaCNN,
    NatureCNN,
    SmallCNN,
    default_extractor,
    features_of,
    num_features,
)

KEY = jax.random.key(0)
ATARI = spaces.Box(0, 255, (84, 84, 4), np.uint8)
CATCH = spaces.Box(0.0, 1.0, (10, 5))
MINATAR = spaces.Box(0, 1, (10, 10, 4), np.bool_)
VECTOR = spaces.Box(-1.0, 1.0, (3,))


def convolution(size, channels_in, channels_out):
    return size * size * channels_in * channels_out + channels_out


def num_weights(extractor, shape, dtype=jnp.uint8):
    variables = jax.eval_shape(extractor.init, KEY, jax.ShapeDtypeStruct(shape, dtype))
    return sum(leaf.size for leaf in jax.tree.leaves(variables))


def impala_stage(channels_in, channels):
    return convolution(3, channels_in, channels) + 4 * convolution(3, channels, channels)


NATURE = convolution(8, 4, 32) + convolution(4, 32, 64) + convolution(3, 64, 64)
IMPALA = impala_stage(3, 16) + impala_stage(16, 32) + impala_stage(32, 32)
# Two kernels without biases, four scalar biases and a multiplier a block.
FIXUP = (convolution(3, 4, 32) + convolution(3, 32, 64) + convolution(3, 64, 64)) + (
    2 * (2 * 9 * 32 * 32 + 5) + 6 * (2 * 9 * 64 * 64 + 5)
)


@pytest.mark.parametrize(
    ("extractor", "shape", "expected"),
    [
        # 84 -> 20 -> 9 -> 7
        (NatureCNN(), (2, 84, 84, 4), NATURE + 7 * 7 * 64 * 512 + 512),
        # 72x96 -> 9x12
        (ImpalaCNN(), (2, 72, 96, 3), IMPALA + 9 * 12 * 32 * 256 + 256),
        # 84 -> 42 -> 21 -> 11
        (FixupCNN(), (2, 84, 84, 4), FIXUP + 11 * 11 * 64 * 256 + 256),
        (SmallCNN(), (2, 10, 10, 4), convolution(3, 4, 16) + 8 * 8 * 16 * 128 + 128),
        (
            SmallCNN(layer_norm=True),
            (2, 10, 10, 4),
            convolution(3, 4, 16) + 2 * 16 + 8 * 8 * 16 * 128 + 128 + 2 * 128,
        ),
        (MLP((64, 32)), (2, 3, 5), (15 * 64 + 64) + (64 * 32 + 32)),
        (MLP((64,), layer_norm=True), (2, 15), (15 * 64 + 64) + 2 * 64),
    ],
    ids=["nature", "impala", "fixup", "small", "normalized small", "mlp", "normalized mlp"],
)
def test_the_weights_are_those_of_the_published_architecture(extractor, shape, expected):
    assert num_weights(extractor, shape) == expected


@pytest.mark.parametrize("extractor", [ImpalaCNN((4,)), SmallCNN(4), FixupCNN((4,), (1,))])
def test_integer_pixels_are_scaled_and_may_omit_channels(extractor):
    pixels = np.arange(2 * 10 * 5).reshape((2, 10, 5)).astype(np.uint8)

    @jax.jit
    def both(pixels):
        scaled = pixels.astype(jnp.float32)[..., None] / 255.0
        params = extractor.init(KEY, scaled)
        return extractor.apply(params, pixels), extractor.apply(params, scaled)

    features, expected = both(pixels)
    assert features.dtype == jnp.float32 and features.ndim == 2 and np.any(features)
    np.testing.assert_allclose(features, expected, atol=1e-6)


def test_channels_of_categories_become_one_hot_vectors():
    image = np.random.default_rng(0).integers(0, 3, (2, 5, 5, 2)).astype(np.uint8)
    vectors = [np.eye(4)[image[..., 0]][..., :3], np.eye(3)[image[..., 1]][..., :2]]
    vectors = np.concatenate(vectors, axis=-1).astype(
        np.float32
    )  # 2 is out of range for two categories
    plain, by_category = SmallCNN(4), SmallCNN(4, categories=(3, 2))

    @jax.jit
    def both(image, vectors):
        params = plain.init(KEY, vectors)
        return by_category.apply(params, image), plain.apply(params, vectors)

    np.testing.assert_array_equal(*both(image, vectors), strict=True)
    with pytest.raises(TrainingError, match=r"categories=\(3, 2\); expected.*B, H, W, 2"):
        by_category.init(KEY, image[..., :1])


def test_pictures_too_small_for_the_kernels_are_refused():
    with pytest.raises(TrainingError, match=r"10x5.*at least 36x36.*ImpalaCNN"):
        NatureCNN().init(KEY, jnp.zeros((2, 10, 5, 1)))
    with pytest.raises(TrainingError, match=r"2x5.*ImpalaCNN"):
        SmallCNN().init(KEY, jnp.zeros((2, 2, 5)))
    with pytest.raises(TrainingError, match="MLP"):
        ImpalaCNN().init(KEY, jnp.zeros((2, 5)))
    assert num_features(NatureCNN(), spaces.Box(0, 255, (36, 36, 1), np.uint8)) == 512


def test_fixup_blocks_start_as_identity_and_then_learn():
    deep, shallow = FixupCNN((4,), (2,), 8), FixupCNN((4,), (0,), 8)
    x = np.linspace(0.0, 1.0, 2 * 8 * 8, dtype=np.float32).reshape((2, 8, 8, 1))
    blocks = ["_FixupBlock_0", "_FixupBlock_1"]

    def loss(params):
        return ((deep.apply({"params": params}, x) - 1.0) ** 2).sum()

    @jax.jit
    def learn(key):
        params = deep.init(key, x)["params"]
        stem = {name: value for name, value in params.items() if name not in blocks}
        same = deep.apply({"params": params}, x), shallow.apply({"params": stem}, x)
        first = jax.grad(loss)(params)
        params = jax.tree.map(lambda p, g: p - 0.01 * g, params, first)
        return same, first, jax.grad(loss)(params)

    (with_blocks, without), first, second = learn(KEY)
    np.testing.assert_array_equal(with_blocks, without)
    assert np.any(without)
    for block in blocks:
        # The zero kernel stops what goes on to the one in front of it, for one step.
        assert np.any(first[block]["last"]["kernel"])
        assert not np.any(first[block]["first"]["kernel"])
        assert all(np.any(leaf) for leaf in jax.tree.leaves(second[block]))


def test_fixup_first_kernel_is_scaled_by_the_depth():
    x = jnp.zeros((1, 4, 4, 64))
    for blocks in (1, 4):
        params = jax.jit(FixupCNN((64,), (blocks,), 1).init)(KEY, x)["params"]
        deviation = np.std(params["_FixupBlock_0"]["first"]["kernel"])
        np.testing.assert_allclose(deviation, (2 / (9 * 64) / blocks) ** 0.5, rtol=0.03)


@pytest.mark.parametrize(
    ("space", "expected", "features"),
    [
        (VECTOR, "MLP", 64),
        (spaces.Discrete(5, start=2), "MLP", 64),
        (spaces.MultiDiscrete([2, 3]), "MLP", 64),
        (spaces.MultiBinary((2, 2)), "MLP", 64),
        (spaces.Box(-1.0, 1.0, ()), "MLP", 64),
        (spaces.Box(0.0, 1.0, (4, 8)), "MLP", 64),
        (CATCH, "SmallCNN", 128),
        (MINATAR, "SmallCNN", 128),
        (spaces.Box(0, 255, (3, 3, 2), np.uint8), "SmallCNN", 128),
        (spaces.Box(0, 255, (2, 3, 3), np.uint8), "ImpalaCNN", 256),
        (ATARI, "NatureCNN", 512),
        (spaces.Box(0, 255, (9, 84, 84), np.uint8), "NatureCNN", 512),
        (spaces.Dict(a=VECTOR, b=spaces.Discrete(3)), "MLP", 64),
        (spaces.Dict(a=VECTOR, b=CATCH), "DictExtractor", 64 + 128),
        (spaces.Tuple([spaces.Dict(a=CATCH), VECTOR]), "DictExtractor", 128 + 64),
    ],
    ids=str,
)
def test_default_extractor_suits_the_space(space, expected, features):
    extractor = default_extractor(space)
    assert type(extractor).__name__ == expected
    assert num_features(extractor, space) == features


def test_extractor_inputs_are_flat_or_images_under_leading_axes():
    space = spaces.Dict(
        box=spaces.Box(0, 9, (2, 2), np.int16),
        choice=spaces.Discrete(3, start=5),
        choices=spaces.MultiDiscrete([2, 3]),
        frames=spaces.Box(0, 255, (4, 6, 7, 3), np.uint8),
        parts=spaces.Tuple([VECTOR, spaces.MultiBinary(2)]),
        picture=spaces.Box(0, 255, (3, 8, 6), np.uint8),
    )
    observation = jax.jit(space.sample, static_argnums=1)(KEY, (2, 5))
    assert features_of(VECTOR)(observation["parts"][0]) is observation["parts"][0]
    taken, observation = jax.tree.map(
        np.asarray, (jax.jit(features_of(space))(observation), observation)
    )
    np.testing.assert_array_equal(taken["box"], observation["box"].reshape((2, 5, 4)))
    np.testing.assert_array_equal(taken["choice"], np.eye(3)[observation["choice"] - 5])
    left, right = (np.eye(n)[observation["choices"][..., i]] for i, n in enumerate([2, 3]))
    np.testing.assert_array_equal(taken["choices"], np.concatenate([left, right], -1))
    np.testing.assert_array_equal(taken["parts"]["0"], observation["parts"][0])
    np.testing.assert_array_equal(taken["parts"]["1"], observation["parts"][1])
    frames = [observation["frames"][:, :, i] for i in range(4)]
    np.testing.assert_array_equal(taken["frames"], np.concatenate(frames, axis=-1))
    np.testing.assert_array_equal(taken["picture"], np.moveaxis(observation["picture"], 2, -1))
    pictures = {"frames", "picture"}
    for name, leaf in taken.items():
        dtype = jnp.uint8 if name in pictures else jnp.float32
        assert all(part.dtype == dtype for part in jax.tree.leaves(leaf))


def test_dict_features_follow_key_order_for_custom_modules():
    class Doubled(nn.Module):
        @nn.compact
        def __call__(self, x):
            return x * self.param("two", nn.initializers.constant(2.0), (1, 1))

    space = spaces.Dict(a=VECTOR, b=spaces.Discrete(3))
    extractor = DictExtractor({"b": Doubled(), "a": MLP(())})
    observation = features_of(space)({"a": jnp.full((2, 3), 7.0), "b": jnp.array([0, 2])})
    features, params = extractor.init_with_output(KEY, observation)
    np.testing.assert_array_equal(features, [[7, 7, 7, 2, 0, 0], [7, 7, 7, 0, 0, 2]])
    assert len(jax.tree.leaves(params)) == 1
    assert num_features(extractor, space) == 6
    np.testing.assert_array_equal(
        MLP(()).apply({}, observation), [[7, 7, 7, 1, 0, 0], [7, 7, 7, 0, 0, 1]]
    )
    with pytest.raises(TrainingError, match="'a'"):
        extractor.init(KEY, {"a": observation["a"]})


def test_a_module_that_is_no_extractor_of_the_space_is_refused():
    for module, space, word in [
        (nn.Dense(3), CATCH, "Flatten"),
        (nn.LSTMCell(3), VECTOR, "LSTMCell"),
        (NatureCNN(), CATCH, "36x36"),
    ]:
        with pytest.raises(TrainingError, match=word):
            num_features(module, space)
    with pytest.raises(TrainingError, match='"relu"'):
        default_extractor(VECTOR, activation="rellu")
