"""Reference implementations of environments, whose state can be read and written.

An `Oracle` wraps a program that we did not write. `benchmarks.certify` compares it with ours step
by step, and the tests do the same with fewer steps. `oracle_for(env)` finds the oracle of a class.
"""

import abc
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any, ClassVar

import chex
import jax
import numpy as np

from jaxenvs.core import Environment

Policy = Callable[[Environment, Any, chex.PRNGKey], jax.Array]  # (env, state, key) -> action

# The modules of oracles, with a folder of `jaxenvs.envs` and names of classes in it. An oracle is
# named after the class: CatchOracle.
MODULES: dict[str, tuple[str, str]] = {
    "babyai": (
        "minigrid.babyai",
        "ActionObjDoor BlockedUnlockPickup BossLevel BossLevelNoUnlock FindObjS5 GoTo"
        " GoToDoor GoToImpUnlock GoToLocal GoToObj GoToObjDoor GoToRedBall GoToRedBallGrey"
        " GoToRedBlueBall GoToSeq KeyCorridor KeyInBox MiniBossLevel MoveTwoAcross OneRoomS8"
        " Open OpenDoor OpenDoorsOrder OpenRedDoor OpenTwoDoors Pickup PickupAbove PickupDist"
        " PickupLoc PutNext PutNextLocal Synth SynthLoc SynthSeq UnblockPickup Unlock"
        " UnlockLocal UnlockPickup UnlockToUnlock",
    ),
    "box2d": ("box2d", "BipedalWalker LunarLander"),
    "bsuite": (
        "bsuite",
        "Bandit BsuiteCartPole BsuiteMountainCar CartPoleSwingup Catch DeepSea DiscountingChain"
        " MemoryChain Mnist UmbrellaChain",
    ),
    "classic_control": (
        "classic_control",
        "Acrobot CartPole MountainCar MountainCarContinuous Pendulum",
    ),
    "dm_control": (
        "dm_control",
        "Acrobot BallInCup Cartpole Cheetah Dog Finger Fish Hopper Humanoid HumanoidCMU LQR"
        " Manipulator Pendulum PointMass Quadruped QuadrupedEscape Reacher Stacker Swimmer Walker",
    ),
    "goals": ("goals", "BitFlipping"),
    "gymnax": (
        "misc",
        "BernoulliBandit FourRooms GaussianBandit MetaMaze PointRobot Pong Reacher Swimmer",
    ),
    "minatar": ("minatar", "Asterix Breakout Freeway SpaceInvaders"),
    "minatar_seaquest": ("minatar", "Seaquest"),
    "minigrid": (
        "minigrid",
        "BlockedUnlockPickup Crossing DistShift DoorKey DynamicObstacles Empty Fetch FourRooms"
        " GoToDoor GoToObject KeyCorridor LavaGap LockedRoom Maze Memory MultiRoom ObstructedMaze"
        " ObstructedMazeDoor Playground PutNear RedBlueDoors Unlock UnlockPickup",
    ),
    "mujoco": (
        "mujoco",
        "Ant HalfCheetah Hopper Humanoid HumanoidStandup InvertedDoublePendulum InvertedPendulum"
        " Pusher Reacher Swimmer Walker2d",
    ),
    "published": ("toy_text", "NChain"),
    "robotics": (
        "robotics",
        "AntMaze FetchPickAndPlace FetchPush FetchReach FetchSlide PointMaze",
    ),
    "toy_text": ("toy_text", "Blackjack CliffWalking FrozenLake Taxi"),
}
_MODULE_OF = {
    (folder, name): f"benchmarks.oracles.{module}"
    for module, (folder, names) in MODULES.items()
    for name in names.split()
}


class Oracle(abc.ABC):
    """One instance of a reference implementation, with the parameters of `env`.

    States are those of `env`, with NumPy arrays as leaves, so they can be moved between both.
    """

    package: ClassVar[str]  # the distributions whose versions the certificate names
    note: ClassVar[str] = ""  # what the certificate says of the reference besides
    # Parameters to certify besides the defaults, such as {"is_slippery": False}.
    variants: ClassVar[Iterable[Mapping[str, Any]]] = ()
    # The least number of episodes as a share of the steps to compare.
    least_starts: float = 0.01
    # Whether `start_at` can start an episode at the start of one of ours.
    starts_at_ours: bool = False
    # How much a certificate compares, see `benchmarks.certify`.
    sizes: ClassVar[Mapping[str, int]] = {
        "steps": 10_000,
        "episodes": 1_000,
        "longest": 1_000,
        "samples": 2_000,
    }
    # The largest error of floats, absolute or relative to the reference's value.
    tolerance: float = 1e-5
    # The share of steps that may differ by more, with a reason.
    tolerated: float = 0.0
    # Lines of these functions that need not run, such as rendering: parts of "file.py: the line".
    unreachable: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def variants_of(cls, engine: str | None) -> tuple[dict[str, Any], ...]:
        """Returns the parameters to certify, the defaults first."""
        del engine
        return {}, *map(dict, cls.variants)

    def __init__(self, env: Environment, seed: int) -> None:
        """Makes the reference implementation, with its own random generator."""
        self.env = env
        self.random = np.random.default_rng(seed)
        # Whether the last step was truncated. None if the reference leaves this to wrappers.
        self.truncated: bool | None = None
        # The info of the last step. None if it is not compared.
        self.info: dict[str, Any] | None = None

    @property
    @abc.abstractmethod
    def step_functions(self) -> tuple[FunctionType, ...]:
        """The reference's functions that make up a step, whose lines must all run."""

    @abc.abstractmethod
    def reset(self) -> Any:
        """Starts an episode with the reference's own draws. Returns its observation."""

    def start_at(self, state: Any) -> Any:
        """Starts an episode where one of ours starts. Returns the reference's observation."""
        raise NotImplementedError

    def observe_start(self, state: Any) -> Any:
        """Returns what our environment observes where the reference starts."""
        return self.env._observe(state)  # pyright: ignore[reportAttributeAccessIssue]

    @abc.abstractmethod
    def step(self, action: int | np.ndarray) -> tuple[Any, float, bool]:
        """Takes one step. Returns observation, reward, and whether the episode terminated."""

    @abc.abstractmethod
    def get_state(self) -> Any:
        """Returns the reference's state as a state of `env` with NumPy arrays as leaves."""

    @abc.abstractmethod
    def set_state(self, state: Any) -> None:
        """Continues from a state of `env`."""

    def get_draws(self) -> Any:
        """Returns what chance decided in the last step, as `env.draw` would return it."""
        raise NotImplementedError

    def get_table(self) -> Any:
        """Returns what `env.table` returns, if the reference has a table of all transitions."""
        return None

    def sample_action(self) -> Any:
        """Returns a random action."""
        return self.random.integers(self.env.action_space.n)  # pyright: ignore[reportAttributeAccessIssue]

    @staticmethod
    def random_policy(env: Environment, state: Any, key: chex.PRNGKey) -> jax.Array:
        """Returns an action with the distribution of `sample_action`, for our environment."""
        del state
        return env.action_space.sample(key)

    # A policy that gets further than a random one, as a function of our state. None: random only.
    policy: ClassVar[Policy | None] = None

    def player(self) -> Callable[[Any], Any] | None:
        """Returns such a policy for one episode that runs on the host, a function of our state."""
        return None

    def parts(self, ours: Any, theirs: Any) -> Sequence[tuple[Any, Any]]:
        """Returns parts of two samples of states whose distributions are compared, too.

        Needed where states have so many values that each occurs a few times only.
        """
        del ours, theirs
        return ()

    def unusual_actions(self) -> Iterable[Any]:
        """Returns the actions to take in each of the unusual states."""
        return [self.sample_action() for _ in range(3)]

    def unusual_states(self) -> Iterable[Any]:
        """Returns states that play does not reach, but rules cover."""
        return ()


class RecordingGenerator:
    """A random generator of NumPy's, old or new, with a record of its results."""

    def __init__(self, generator: np.random.RandomState | np.random.Generator) -> None:
        self._generator = generator
        self.drawn: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._generator, name)

        def draw(*args: Any, **kwargs: Any) -> Any:
            self.drawn.append(method(*args, **kwargs))
            return self.drawn[-1]

        return draw


@jax.jit
def table_of(env: Environment) -> Any:
    """Returns the table of all transitions of an environment that has one."""
    return env.table  # pyright: ignore[reportAttributeAccessIssue]


def oracle_for(env: Environment) -> type[Oracle]:
    """Returns the oracle class of the innermost environment.

    Raises:
        KeyError: there is none.
    """
    module = importlib.import_module(_MODULE_OF[_folder_and_name(env)])
    return getattr(module, f"{type(env.unwrapped).__name__}Oracle")


def oracle_name(entry_point: str) -> str | None:
    """Returns the module with the oracle of "jaxenvs.envs.folder.module:Class", None without."""
    module, _, name = entry_point.partition(":")
    return _MODULE_OF.get((module.removeprefix("jaxenvs.envs.").rpartition(".")[0], name))


def has_oracle(env: Environment) -> bool:
    """Returns whether the innermost environment has an oracle."""
    return _folder_and_name(env) in _MODULE_OF


def _folder_and_name(env: Environment) -> tuple[str, str]:
    """Returns the folder of `jaxenvs.envs` that has the innermost class, and the class's name."""
    kind = type(env.unwrapped)
    return kind.__module__.removeprefix("jaxenvs.envs.").rpartition(".")[0], kind.__name__
