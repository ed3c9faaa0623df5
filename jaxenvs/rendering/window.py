"""A window on the screen that shows frames."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jaxenvs.errors import missing_extra


class Window:
    """A window that shows at most `fps` frames per second. It opens with the first frame."""

    def __init__(self, fps: int) -> None:
        self._fps = fps
        self._pygame: Any = None
        self._screen: Any = None
        self._clock: Any = None

    def show(self, frame: np.ndarray) -> None:
        """Shows `frame`, uint8[H, W, 3], and waits to keep the frame rate.

        Raises:
            MissingExtraError: pygame is not installed.
        """
        if self._pygame is None:
            try:
                import pygame
            except ImportError as error:
                raise missing_extra('render_mode="human"', "pygame", "render") from error
            self._pygame, self._clock = pygame, pygame.time.Clock()
        pygame = self._pygame
        size = (frame.shape[1], frame.shape[0])
        if self._screen is None or self._screen.get_size() != size:
            pygame.display.init()
            pygame.display.set_caption("jaxenvs")
            self._screen = pygame.display.set_mode(size)
            pygame.key.set_repeat(300, 100)  # milliseconds
        surface = pygame.surfarray.make_surface(np.swapaxes(frame, 0, 1))
        self._screen.blit(surface, (0, 0))
        pygame.event.pump()
        self._clock.tick(self._fps)
        pygame.display.flip()

    def read_keys(self) -> Iterator[tuple[str, bool]]:
        """Yields pygame's names of the keys pressed (True) and released since the last call.

        A held key is pressed again and again. To close the window is to press "escape".
        """
        pygame = self._pygame
        for event in pygame.event.get((pygame.KEYDOWN, pygame.KEYUP, pygame.QUIT)):
            if event.type == pygame.QUIT:
                yield "escape", True
            else:
                yield pygame.key.name(event.key), event.type == pygame.KEYDOWN

    def close(self) -> None:
        """Closes the window."""
        if self._screen is not None:
            self._pygame.display.quit()
            self._screen = None


def mosaic(frames: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """Tiles N frames, uint8[H, W, 3], into one roughly square image; unused tiles are black."""
    stack = np.asarray(frames)
    num_frames, height, width, channels = stack.shape
    columns = math.ceil(math.sqrt(num_frames * height / width))
    rows = math.ceil(num_frames / columns)
    grid = np.zeros((rows * columns, height, width, channels), stack.dtype)
    grid[:num_frames] = stack
    grid = grid.reshape(rows, columns, height, width, channels)
    return grid.swapaxes(1, 2).reshape(rows * height, columns * width, channels)
