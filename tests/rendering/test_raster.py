import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.rendering import raster
from jaxenvs.rendering.raster import BLACK, RED, WHITE

SHAPE = (40, 60)  # height, width
GRID = raster.pixel_grid(SHAPE)


def area(shape):
    assert shape.shape == SHAPE and shape.dtype == jnp.float32
    assert shape.min() >= 0 and shape.max() <= 1
    return float(shape.sum())


def centroid(shape):
    x, y = GRID
    return float((shape * x).sum() / shape.sum()), float((shape * y).sum() / shape.sum())


def test_the_grid_starts_at_the_lower_left_corner():
    x, y = GRID
    assert x.shape == (1, 60) and y.shape == (40, 1)
    assert x[0, 0] == 0.5 and x[0, -1] == 59.5
    assert y[-1, 0] == 0.5 and y[0, 0] == 39.5


@pytest.mark.parametrize("center", [(30, 20), (30.3, 19.8), (25.75, 22.5)])
def test_a_disc_has_its_area_and_place_to_a_fraction_of_a_pixel(center):
    disc = raster.disc(*GRID, center, 8.0)
    assert area(disc) == pytest.approx(math.pi * 8**2, rel=0.01)
    np.testing.assert_allclose(centroid(disc), center, atol=0.05)


@pytest.mark.parametrize("angle", [0.0, 0.3, math.pi / 2, -1.0])
def test_a_box_keeps_its_area_when_turned(angle):
    box = raster.box(*GRID, (30.2, 20.1), (20.0, 6.0), angle)
    assert area(box) == pytest.approx(120, rel=0.05)
    np.testing.assert_allclose(centroid(box), (30.2, 20.1), atol=0.1)


def test_a_box_turns_counter_clockwise_with_y_upwards():
    box = raster.box(*GRID, (30.0, 20.0), (30.0, 2.0), math.pi / 4)
    above_right, below_right = box[19 - 8, 30 + 8], box[20 + 8, 30 + 8]
    assert above_right == 1 and below_right == 0


def test_a_line_is_a_box_with_round_ends():
    line = raster.line(*GRID, (15.0, 20.0), (45.0, 20.0), width=6.0)
    assert area(line) == pytest.approx(30 * 6 + math.pi * 3**2, rel=0.02)


def test_a_line_of_no_length_is_a_disc():
    line = raster.line(*GRID, (15.0, 20.0), (15.0, 20.0), width=6.0)
    np.testing.assert_allclose(line, raster.disc(*GRID, (15.0, 20.0), 3.0), atol=1e-5)


def test_a_polygon_has_its_area_and_grows_by_its_outline():
    corners = [(10.0, 5.0), (50.0, 5.0), (30.0, 35.0)]
    triangle = raster.polygon(*GRID, corners)
    assert area(triangle) == pytest.approx(40 * 30 / 2, rel=0.01)
    assert area(raster.polygon(*GRID, corners, outline=1.0)) > area(triangle) + 100


def test_a_union_covers_what_any_shape_covers():
    left, right = raster.disc(*GRID, (15, 20), 5.0), raster.disc(*GRID, (45, 20), 5.0)
    assert area(raster.union(left, right)) == pytest.approx(area(left) + area(right))
    np.testing.assert_array_equal(raster.union(left, left), left)


def test_later_layers_lie_on_top_and_edges_blend():
    half = jnp.full(SHAPE, 0.5, jnp.float32)
    everywhere = jnp.ones(SHAPE, bool)
    picture = raster.paint(WHITE, (everywhere, BLACK), (half, RED))
    assert picture.shape == (*SHAPE, 3) and picture.dtype == jnp.uint8
    np.testing.assert_array_equal(picture[0, 0], np.round(np.array(RED) / 2))


def test_a_picture_can_be_painted_on():
    picture = raster.paint(WHITE, (raster.disc(*GRID, (30, 20), 8.0), RED))
    twice = raster.paint(picture, (jnp.zeros(SHAPE, bool), BLACK))
    np.testing.assert_array_equal(picture, twice)


def test_pictures_are_drawn_in_batches_inside_jit():
    @jax.jit
    @jax.vmap
    def draw(place):
        return raster.paint(WHITE, (raster.disc(*GRID, (place, 20.0), 3.0), BLACK))

    pictures = draw(jnp.array([10.0, 50.0]))
    assert pictures.shape == (2, *SHAPE, 3)
    assert pictures[0, 20, 10, 0] == 0 and pictures[0, 20, 50, 0] == 255
    assert pictures[1, 20, 10, 0] == 255 and pictures[1, 20, 50, 0] == 0
