"""Colors and resizing of native/atari/pixels.h, compared with golden bits, ale_py and OpenCV."""

import ctypes
import hashlib
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import jaxenvs

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="needs cc")

HEADER = Path(jaxenvs.__file__).parent / "bridge" / "native" / "atari" / "pixels.h"
SOURCE = """
#include "pixels.h"
void *make(int height, int rows, int columns) { return px_resize_new(height, rows, columns); }
void drop(void *plan) { px_resize_free((px_resize *)plan); }
void resize(void *plan, const uint8_t *frame, uint8_t *result) {
  px_resize_frame((px_resize *)plan, frame, result);
}
void resize_by_pixel(void *plan, const uint8_t *frame, uint8_t *result) {
  const px_resize *p = (px_resize *)plan;
  for (int i = 0; i < p->y.to * p->x.to; i++)
    result[i] = px_shrink_pixel(p, frame, i / p->x.to, i % p->x.to);
}
void colors(int height, uint8_t *result) { px_colors_init((px_colors *)result, height); }
void to_rgb(const uint8_t *colors, const uint8_t *screen, int count, uint8_t *result) {
  px_to_rgb((const px_colors *)colors, screen, count, result);
}
void observe(void *plan, const uint8_t *table, const uint8_t *first, const uint8_t *second,
             uint8_t *result) {
  px_observe((px_resize *)plan, table, first, second, result);
}
"""
HEIGHTS = (210, 214, 220, 230, 250)
SIZES = [
    *[(84, 84), (64, 64), (96, 96), (42, 42), (110, 84), (105, 80), (210, 160), (80, 105)],
    *[(83, 83), (1, 1), (7, 3), (128, 160)],  # shrinking, here and above
    *[(160, 210), (100, 200), (256, 256), (420, 320)],  # enlarging
]
GAMES = [
    *["alien", "asteroids", "atlantis", "beam_rider", "boxing", "breakout", "enduro", "freeway"],
    *["frostbite", "hero", "kangaroo", "montezuma_revenge", "ms_pacman", "pitfall", "pong"],
    *["qbert", "riverraid", "seaquest", "space_invaders", "venture", "journey_escape"],
    *["air_raid", "adventure"],  # for European televisions
]


class Pixels:
    """The functions of the header, with NumPy arrays."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.library.make.restype = ctypes.c_void_p

    def call(self, name, *args):
        args = [a.ctypes.data_as(ctypes.c_void_p) if isinstance(a, np.ndarray) else a for a in args]
        getattr(self.library, name)(*args)

    def colors(self, height=210):
        result = np.empty((4, 256), np.uint8)  # red, green, blue, gray
        self.call("colors", height, result)
        return result

    def resized(self, name, size, *arrays, height=None):
        plan = self.library.make(height or len(arrays[-1]), *size)
        assert plan
        result = np.empty(size, np.uint8)
        self.call(name, ctypes.c_void_p(plan), *map(np.ascontiguousarray, arrays), result)
        self.call("drop", ctypes.c_void_p(plan))
        return result


BUILDS = {"fast": "-O2", "portable": "-O2 -DAT_PORTABLE", "fused": "-O3 -march=native"}


@pytest.fixture(scope="module", params=list(BUILDS.values()), ids=list(BUILDS))
def pixels(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pixels")
    (folder / "pixels.c").write_text(SOURCE)
    flags = ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{HEADER.parent}"]
    flags += request.param.split()
    subprocess.run(["cc", *flags, folder / "pixels.c", "-o", folder / "pixels.so"], check=True)
    return Pixels(folder / "pixels.so")


def noise(height, below=256, seed=0):
    return np.random.default_rng(seed).integers(0, below, (height, 160)).astype(np.uint8)


def extremes(height):
    y, x = np.indices((height, 160))
    boards = [(x + y) % 2, x % 2, y % 2, (x // 2 + y // 3) % 2, np.ones_like(x), np.zeros_like(x)]
    frames = [255 * board for board in boards]
    frames += [noise(height), noise(height, 2), 255 * noise(height, 2)]  # with many ties
    return [frame.astype(np.uint8) for frame in frames]


def digest(array):
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]


def mixed(height):
    """A frame of all values, without a random generator."""
    i = np.arange(height * 160, dtype=np.uint64)
    return ((i * i * 2654435761) >> 13 & 255).astype(np.uint8).reshape(height, 160)


# --- goldens ---

COLORS = {210: "60dfe91d152ab6d3", 250: "880265c75ef53353"}  # of what ale_py 0.12.1 gives
RESIZED = {  # (height, rows, columns): SHA-256 of what OpenCV 5.0 gives
    (210, 84, 84): "c13a218052b70cde",
    (214, 84, 84): "1b9d7d241c923b42",
    (220, 84, 84): "8a83a7d70fc7a450",
    (230, 84, 84): "e1af518772d0afb2",
    (250, 84, 84): "052325c1919f4613",
    (210, 105, 80): "d0c593f9e29aa324",
    (210, 70, 40): "68f4e6829fa45341",
    (210, 1, 1): "76be8b528d0075f7",
    (210, 210, 160): "f40c2d1e80b0a6ca",
    (210, 83, 83): "4b3fa5e73af976bb",
    (210, 100, 200): "9034f192802827bc",
    (250, 500, 320): "95ccca7bd7b8af5f",
}


@pytest.mark.parametrize(("height", "rows", "columns"), RESIZED)
def test_resized_frame_has_golden_bits(pixels, height, rows, columns):
    result = pixels.resized("resize", (rows, columns), mixed(height))
    assert digest(result) == RESIZED[height, rows, columns]


@pytest.mark.parametrize(
    ("height", "golden"), [(210, "60dfe91d152ab6d3"), (250, "880265c75ef53353")]
)
def test_colors_have_golden_bits(pixels, height, golden):
    colors = pixels.colors(height)
    assert digest(colors) == golden
    assert (colors[:, 0] == 0).all()
    assert (colors[:3, 1::2] == colors[3, ::2]).all()  # lines without color


# --- against plain arithmetic ---


@pytest.mark.parametrize("size", [(84, 84), (64, 64), (210, 160), (105, 80), (42, 160)])
@pytest.mark.parametrize("height", HEIGHTS)
def test_whole_numbers_give_pixels_of_float_arithmetic(pixels, height, size):
    for frame in extremes(height):
        result = pixels.resized("resize", size, frame)
        np.testing.assert_array_equal(
            result, pixels.resized("resize_by_pixel", size, frame), strict=True
        )


@pytest.mark.parametrize("odd", [0, 1], ids=["even", "odd"])
def test_observation_is_resized_maximum_of_two_screens(pixels, odd):
    first = 2 * noise(210, 128, seed=1) + odd
    second = np.where(noise(210, 3, seed=2) == 0, 2 * noise(210, 128, seed=3), first)
    second[100:] = first[100:]
    first[20:60], second[40:60] = first[20], second[40]  # lines that repeat
    first, second = first.astype(np.uint8), second.astype(np.uint8)
    for table in pixels.colors():
        expected = pixels.resized("resize", (84, 84), np.maximum(table[first], table[second]))
        result = pixels.resized("observe", (84, 84), table, first, second)
        np.testing.assert_array_equal(result, expected, strict=True)


@pytest.mark.parametrize("sizes", [(257, 84, 84), (2, 84, 84), (210, 0, 84), (210, 84, -1)])
def test_size_out_of_bounds_gives_no_plan(pixels, sizes):
    assert not pixels.library.make(*sizes)


# --- against ale_py and OpenCV ---


@pytest.mark.interop
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_resizing_equals_opencv(pixels, size):
    cv2 = pytest.importorskip("cv2")
    for height in HEIGHTS:
        for frame in [mixed(height), *extremes(height)]:
            expected = cv2.resize(frame, size[::-1], interpolation=cv2.INTER_AREA)
            result = pixels.resized("resize", size, frame)
            np.testing.assert_array_equal(result, expected, strict=True)


@pytest.mark.interop
def test_resizing_in_color_is_by_channel_in_opencv():
    cv2 = pytest.importorskip("cv2")
    frame = np.stack([noise(210, seed=i) for i in range(3)], -1)
    for rows, columns in SIZES:
        result = cv2.resize(frame, (columns, rows), interpolation=cv2.INTER_AREA)
        for i in range(3):
            channel = np.ascontiguousarray(frame[..., i])
            expected = cv2.resize(channel, (columns, rows), interpolation=cv2.INTER_AREA)
            np.testing.assert_array_equal(result[..., i], expected, strict=True)


@pytest.mark.interop
@pytest.mark.parametrize("game", GAMES)
def test_real_screens_equal_those_of_ale_py(pixels, game):
    ale_py, cv2 = pytest.importorskip("ale_py"), pytest.importorskip("cv2")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.loadROM(str(Path(ale_py.__file__).parent / "roms" / f"{game}.bin"))
    ale.reset_game()
    actions, random = ale.getMinimalActionSet(), np.random.default_rng(0)
    colors = pixels.colors(ale.getScreen().shape[0])
    screens, grays = [], []
    for step in range(200):
        if ale.game_over():
            ale.reset_game()
        ale.act(random.choice(actions))
        if step % 20 < 2:
            screens.append(ale.getScreen().copy())
            grays.append(ale.getScreenGrayscale().copy())
            rgb = np.empty((*screens[-1].shape, 3), np.uint8)
            pixels.call("to_rgb", colors, screens[-1], screens[-1].size, rgb)
            np.testing.assert_array_equal(rgb, ale.getScreenRGB(), strict=True)
            np.testing.assert_array_equal(colors[3][screens[-1]], grays[-1], strict=True)
    for i in range(0, len(screens), 2):
        pooled = np.maximum(grays[i], grays[i + 1])
        expected = cv2.resize(pooled, (84, 84), interpolation=cv2.INTER_AREA)
        result = pixels.resized("observe", (84, 84), colors[3], screens[i], screens[i + 1])
        np.testing.assert_array_equal(result, expected, strict=True)
