"""Writing of gif, mp4 and png files. Runs on the host; needs the extra `render`."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jaxenvs.errors import RenderError, closest, missing_extra


def write_video(path: str | Path, frames: Any, *, fps: float = 30.0) -> Path:
    """Writes frames to a file whose suffix determines the format.

    A `.gif` loops forever, an `.mp4` uses H.264, and a `.png` shows up to eight frames, evenly
    spaced in time, side by side. Missing folders are created; an existing file is replaced.

    Args:
        path: the file.
        frames: uint8[T, H, W, 3], or one image, uint8[H, W, 3].
        fps: frames per second, above 0. A gif stores hundredths of a second per frame, so its
            rate is rounded, and at most 50.

    Returns:
        `path`, as a `Path`.

    Raises:
        RenderError: the suffix is not supported, the frames have the wrong shape or dtype, or
            `fps` is not above 0.
        MissingExtraError: the package that writes the format is not installed.
    """
    path = Path(path)
    if path.suffix.lower() not in _WRITERS:
        raise RenderError(
            f'the file name "{path.name}" must end in {", ".join(_WRITERS)}, for the format.'
            f"{closest(path.suffix, _WRITERS)}"
        )
    frames = np.asarray(frames)
    if frames.ndim == 3:
        frames = frames[None]
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[-1] != 3 or not frames.size:
        raise RenderError(
            f"write_video got frames of {frames.dtype}{list(frames.shape)}; expected"
            " uint8[T, H, W, 3] with at least one frame.  Stack the results of env.render(state)."
        )
    if not fps > 0:
        raise RenderError(f"write_video got fps={fps}; it must be above 0.")
    path.parent.mkdir(parents=True, exist_ok=True)
    _WRITERS[path.suffix.lower()](path, frames, fps)
    return path


def _write_gif(path: Path, frames: np.ndarray, fps: float) -> None:
    images = [_to_pillow(frame) for frame in frames]
    images[0].save(
        path,
        save_all=True,
        append_images=images[1:],
        duration=10 * max(2, round(100 / fps)),  # browsers slow down frames of less than 20 ms
        loop=0,
    )


def _write_mp4(path: Path, frames: np.ndarray, fps: float) -> None:
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise missing_extra("Writing mp4", "imageio-ffmpeg", "render") from error
    height, width = (size + size % 2 for size in frames.shape[1:3])  # H.264 needs even sizes
    pad = ((0, height - frames.shape[1]), (0, width - frames.shape[2]), (0, 0))
    writer = imageio_ffmpeg.write_frames(
        str(path),
        (width, height),
        fps=fps,  # pyright: ignore[reportArgumentType] floats work, despite its annotation
        macro_block_size=2,
        ffmpeg_log_level="error",
    )
    with warnings.catch_warnings():
        # JAX warns of forks; this one runs another program at once.
        warnings.filterwarnings("ignore", ".*os.fork", RuntimeWarning)
        writer.send(None)
    try:
        for frame in frames:
            writer.send(np.ascontiguousarray(np.pad(frame, pad, mode="edge")))
    finally:
        writer.close()


def _write_png(path: Path, frames: np.ndarray, fps: float) -> None:
    del fps  # not used for an image
    chosen = np.linspace(0, len(frames) - 1, min(len(frames), 8)).round().astype(int)
    _to_pillow(np.concatenate(frames[chosen], axis=1)).save(path)


def _to_pillow(frame: np.ndarray) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise missing_extra("Writing images", "pillow", "render") from error
    return Image.fromarray(frame)


_WRITERS: dict[str, Callable[[Path, np.ndarray, float], None]] = {
    ".gif": _write_gif,
    ".mp4": _write_mp4,
    ".png": _write_png,
}
