"""Hypothesis strategies for spaces, drawn from small pools so that few programs are compiled."""

import numpy as np
from hypothesis import strategies as st

from jaxenvs.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

INFINITY = float("inf")
SHAPES = st.sampled_from([(), (3,), (2, 3)])
FLOAT_BOUNDS = [(-1.0, 1.0), (0.25, 0.25), (-3e38, 3e38), (2.0, INFINITY), (-INFINITY, -5.0)]
FLOAT_BOUNDS += [(-INFINITY, INFINITY), ([-1.0, -INFINITY, 0.0], [1.0, INFINITY, INFINITY])]


@st.composite
def float_boxes(draw):
    low, high = draw(st.sampled_from(FLOAT_BOUNDS))
    shape = draw(st.sampled_from([(3,), (2, 3)])) if isinstance(low, list) else draw(SHAPES)
    return Box(low, high, shape)


@st.composite
def integer_boxes(draw):
    dtype = np.dtype(draw(st.sampled_from(["int8", "uint8", "int16", "int32", "uint32"])))
    limits = np.iinfo(dtype)
    bounds = [(limits.min, limits.max), (limits.max - 1, limits.max), (0, 5), (7, 7)]
    return Box(*draw(st.sampled_from(bounds)), draw(SHAPES), dtype)


DISCRETES = st.builds(
    Discrete, st.sampled_from([1, 2, 3, 8, 100]), st.sampled_from([-(2**31), -4, 0, 7])
)
MULTI_DISCRETES = st.sampled_from(
    [
        MultiDiscrete([3, 2, 5]),
        MultiDiscrete([4, 4]),
        MultiDiscrete([[1, 2], [3, 4]], start=[[-1, 0], [2, 3]]),
        MultiDiscrete([3, 3], start=[0, 1]),
        MultiDiscrete(6),
    ]
)
MULTI_BINARIES = st.sampled_from([MultiBinary(1), MultiBinary(5), MultiBinary((2, 3))])
BOOLEANS = st.builds(Box, st.just(False), st.just(True), SHAPES, st.just(bool))

ARRAY_SPACES = st.one_of(
    float_boxes(), integer_boxes(), BOOLEANS, DISCRETES, MULTI_DISCRETES, MULTI_BINARIES
)
SPACES = st.recursive(
    ARRAY_SPACES,
    lambda parts: st.one_of(
        st.dictionaries(st.sampled_from(["a", "b", "ä", "not a name"]), parts, max_size=3).map(
            Dict
        ),
        st.lists(parts, max_size=3).map(Tuple),
    ),
    max_leaves=4,
)
SEEDS = st.integers(0, 2**32 - 1)
