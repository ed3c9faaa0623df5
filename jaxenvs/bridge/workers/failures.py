"""Placeholders for environments that failed, and tracebacks for reports."""

import contextlib
import os
import traceback
from typing import Any

REMAKING = "reconstruction"  # the operation in reports of environments that could not be replaced
_HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep  # the bridge


class FailedEnv:
    """A placeholder for an environment that could not be reconstructed. Its methods raise."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def step(self, action: Any) -> Any:
        raise RuntimeError("the environment could not be constructed again") from self._error

    def reset(self, **kwargs: Any) -> Any:
        raise RuntimeError("the environment could not be constructed again") from self._error

    def close(self) -> None:
        pass


def close_quietly(env: Any) -> None:
    with contextlib.suppress(BaseException):
        env.close()


def traceback_of(error: BaseException) -> str:
    """Returns the traceback without this package's frames above the environment's."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and _is_ours(frames):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def _is_ours(frames: Any) -> bool:
    return frames.tb_frame.f_code.co_filename.startswith(_HERE)
