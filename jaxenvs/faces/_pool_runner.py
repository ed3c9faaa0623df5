"""The class that runs a pool like a native batch, with the same results and errors."""

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from jaxenvs.errors import AlreadyPendingError, ClosedError, NothingPendingError, ParameterError
from jaxenvs.faces._host_timestep import HostTimeStep
from jaxenvs.faces._seeds import parse_seeds

if TYPE_CHECKING:
    from jaxenvs.bridge.pool import Pool


class PoolRunner:
    """Runs a pool as `BatchRunner` runs a native batch."""

    has_info = True

    def __init__(self, pool: "Pool") -> None:
        self.env = pool
        self.num_envs = pool.num_envs
        if pool.batch_size != pool.num_envs:
            raise ParameterError(
                f"this interface steps all environments together, but {pool!r} returns batches of"
                f" {pool.batch_size}.  Make it without batch_size."
            )

    def reset(self, seed: Any = None) -> HostTimeStep:
        """Starts an episode in every environment."""
        with gymnasium_errors("reset"):
            observation, infos = self.env.reset(seed=seed)
        none = np.zeros(self.num_envs, bool)
        return _to_timestep((observation, np.zeros(self.num_envs), none, none.copy(), infos))

    def send(self, actions: Any, name: str = "step") -> None:
        """Starts a step."""
        with gymnasium_errors(name):
            self.env.step_async(actions)

    def receive(self) -> HostTimeStep:
        """Waits for the step that `send` started."""
        with gymnasium_errors("step_wait"):
            return _to_timestep(self.env.step_wait())

    def step(self, actions: Any) -> HostTimeStep:
        """Takes one action in every environment."""
        with gymnasium_errors("step"):
            return _to_timestep(self.env.step(actions))

    def render(self) -> list[np.ndarray]:
        """Returns a frame of each environment, uint8[H, W, 3].

        Raises:
            ParameterError: the environments return no frames.
        """
        with gymnasium_errors("render"):
            frames = self.env.render()
        if any(frame is None for frame in frames):
            raise ParameterError(
                f"{self.env!r} returned no frames, because its environments have"
                f" render_mode={self.env.render_mode!r}.  Make them with"
                ' render_mode="rgb_array".'
            )
        return [np.asarray(frame) for frame in frames]

    def close(self) -> None:
        """Closes the pool."""
        self.env.close()

    def parse_seeds(self, seed: Any) -> list[int]:
        """Returns the seeds of the N environments.

        Raises:
            SeedError: a seed is invalid, or the number of seeds is not N.
        """
        return parse_seeds(seed, self.num_envs, bits=63)


@contextlib.contextmanager
def gymnasium_errors(name: str) -> Iterator[None]:
    """Turns the errors of a pool about the order of calls into Gymnasium's."""
    try:
        yield
    except ClosedError as error:
        raise gymnasium.error.ClosedEnvironmentError(str(error)) from error
    except AlreadyPendingError as error:
        raise gymnasium.error.AlreadyPendingCallError(str(error), name) from error
    except NothingPendingError as error:
        raise gymnasium.error.NoAsyncCallError(str(error), name) from error


def _to_timestep(batch: Any) -> HostTimeStep:
    observation, reward, terminated, truncated, infos = batch
    any_done = bool(terminated.any() or truncated.any())
    read = functools.partial(_read, infos)
    return HostTimeStep(observation, reward, terminated, truncated, any_done, read)


def _read(infos: Mapping[str, Any], name: str) -> Any:
    return infos if name == "info" else infos.get("final_obs")
