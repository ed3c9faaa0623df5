import builtins

import numpy as np
import pytest
from PIL import Image

from jaxenvs.errors import MissingExtraError, RenderError
from jaxenvs.rendering.video import write_video


@pytest.fixture
def frames():
    """uint8[5, 21, 30, 3]: a red square moving right on white, of odd height."""
    frames = np.full((5, 21, 30, 3), 255, np.uint8)
    for t in range(5):
        frames[t, 5:15, 5 * t : 5 * t + 6] = [255, 0, 0]
    return frames


def test_a_gif_keeps_every_frame_and_its_rate(tmp_path, frames):
    with Image.open(write_video(tmp_path / "episode.gif", frames, fps=25)) as gif:
        assert gif.n_frames == 5 and gif.info["duration"] == 40 and gif.info["loop"] == 0
        for t in range(5):
            gif.seek(t)
            np.testing.assert_array_equal(np.asarray(gif.convert("RGB")), frames[t])


def test_a_gif_is_never_faster_than_browsers_play(tmp_path, frames):
    with Image.open(write_video(tmp_path / "episode.gif", frames, fps=1000)) as gif:
        assert gif.info["duration"] == 20


def test_an_mp4_has_every_frame_padded_to_even_sizes(tmp_path, frames):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    path = write_video(tmp_path / "episode.mp4", frames, fps=25)
    reader = imageio_ffmpeg.read_frames(str(path))
    meta = next(reader)
    assert meta["size"] == (30, 22) and meta["fps"] == 25
    pictures = [np.frombuffer(frame, np.uint8).reshape(22, 30, 3) for frame in reader]
    assert len(pictures) == 5
    for t, picture in enumerate(pictures):  # lossy, so only the middle of the square is certain
        assert picture[10, 5 * t + 2, 0] > 150 > picture[10, 5 * t + 2, 1]


def test_a_png_of_one_picture_is_that_picture(tmp_path, frames):
    with Image.open(write_video(tmp_path / "new" / "folder" / "state.png", frames[2])) as png:
        np.testing.assert_array_equal(np.asarray(png), frames[2])


def test_a_png_of_an_episode_is_a_strip_from_first_to_last(tmp_path, frames):
    long = np.concatenate([frames] * 4)
    with Image.open(write_video(tmp_path / "strip.png", long)) as png:
        strip = np.asarray(png)
    assert strip.shape == (21, 8 * 30, 3)
    np.testing.assert_array_equal(strip[:, :30], long[0])
    np.testing.assert_array_equal(strip[:, -30:], long[-1])


@pytest.mark.parametrize(
    ("name", "word"), [("a.gifv", ".gif"), ("a.webm", ".mp4"), ("a", "must end in")]
)
def test_an_unknown_suffix_names_the_known_ones(tmp_path, frames, name, word):
    with pytest.raises(RenderError, match=word):
        write_video(tmp_path / name, frames)


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((4, 8, 8, 3), np.float32),
        np.zeros((4, 8, 8, 4), np.uint8),
        np.zeros((8, 8), np.uint8),
        np.zeros((0, 8, 8, 3), np.uint8),
    ],
    ids=["float", "alpha", "gray", "empty"],
)
def test_frames_of_another_kind_are_refused(tmp_path, wrong):
    with pytest.raises(RenderError, match="uint8"):
        write_video(tmp_path / "a.gif", wrong)
    assert not (tmp_path / "a.gif").exists()


def test_a_rate_of_zero_is_refused(tmp_path, frames):
    with pytest.raises(RenderError, match="fps=0"):
        write_video(tmp_path / "a.gif", frames, fps=0)


@pytest.mark.parametrize(("suffix", "module"), [("gif", "PIL"), ("mp4", "imageio_ffmpeg")])
def test_a_missing_writer_names_the_extra(tmp_path, frames, monkeypatch, suffix, module):
    imported = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == module:
            raise ImportError(name)
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"jaxenvs\[render\]"):
        write_video(tmp_path / f"a.{suffix}", frames)
