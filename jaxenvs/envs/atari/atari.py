"""Games of the Atari 2600 as pure functions of their state."""

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.atari import machine
from jaxenvs.errors import ParameterError, check_integer

_NUM_BOOTS = 8  # games that starts are drawn from, with different timers at power-on
_MEANINGS = (  # by ALE's numbers
    *("NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN"),
    *("UPRIGHT", "UPLEFT", "DOWNRIGHT", "DOWNLEFT", "UPFIRE", "RIGHTFIRE", "LEFTFIRE", "DOWNFIRE"),
    *("UPRIGHTFIRE", "UPLEFTFIRE", "DOWNRIGHTFIRE", "DOWNLEFTFIRE"),
)
_FIRE = _MEANINGS.index("FIRE")
_SHOWS = {"rgb": "rgb", "grayscale": "grayscale", "ram": "nothing"}


@chex.dataclass(frozen=True)
class AtariState:
    """The console, and what the next step needs besides."""

    game: jax.Array  # uint8[S], the console; its first 128 bytes are its memory
    action: jax.Array  # int32[], the last frame's, which may be repeated; see `machine.action_of`
    lives: jax.Array  # int32[]
    frames: jax.Array  # int32[], since the start of the episode
    pictures: jax.Array  # uint8[stack_num, ...], the last ones, with `preprocessing`; else uint8[0]


class Atari(Environment[AtariState]):
    """A game of the Atari 2600.

    Observation: "rgb": uint8[height, 160, 3]; "grayscale": uint8[height, 160]; "ram": uint8[128].
        The height is 210 in most games. With `preprocessing`, uint8[stack_num, *screen_size]
    Action: int32[], one of the game's own actions, or of all 18 with `full_action_space`;
        float32[3] if `continuous`: the radius of the stick from 0 to 1, its angle in radians, and
        the button; a paddle turns by the radius
    Reward: what the score increases by
    Start: the console after ALE's reset, whose timer at power-on is random; with `preprocessing`,
        after 1 to `noop_max` more frames without input, and one with the button pressed if
        `use_fire_reset` and the game has that action
    Terminates: when the game is over; with `terminal_on_life_loss`, when a life is lost
    Truncates: after `max_num_frames_per_episode` frames

    `info` has `lives` and `episode_frame_number`, as ale_py does.

    With `preprocessing`, an observation has the last `stack_num` pictures, which are grayscale, the
    greater of the last two frames of a step for each pixel, and resized, as by Gymnasium's
    AtariPreprocessing and FrameStackObservation. When a game ends within a step, theirs show frames
    of the step before, and ours the last two.

    The console is emulated by jaxenvs, on CPUs. Games are the user's ROMs, by default ale_py's.

    Source: M. G. Bellemare et al., The Arcade Learning Environment, 2013; ale_py 0.12
    (tests/envs/atari/test_atari.py).
    """

    game: str = struct.static("")  # ale_py's name of the ROM, such as "space_invaders"
    obs_type: str = struct.static("rgb")  # or "grayscale" or "ram"
    frameskip: int | tuple[int, int] = struct.static(4)  # frames in a step; (2, 5): 2, 3, or 4
    repeat_action_probability: float = 0.25  # that a frame has the action of the frame before
    full_action_space: bool = struct.static(False)  # all 18 actions, not only the game's own
    continuous: bool = struct.static(False)  # whether actions are angles of the stick
    continuous_action_threshold: float = 0.5  # of both coordinates of the stick, and the button
    max_num_frames_per_episode: int = 108_000  # after which it is truncated
    mode: int | None = struct.static(None)  # of the game; None: the usual one
    difficulty: int | None = struct.static(None)  # of the console's switches; None: the usual one
    preprocessing: bool = struct.static(False)  # whether observations are small pictures
    screen_size: tuple[int, int] = struct.static((84, 84))  # height and width of those
    stack_num: int = struct.static(4)  # the number of those
    noop_max: int = struct.static(30)  # frames without input at the start
    use_fire_reset: bool = struct.static(False)  # whether the button is pressed at the start
    terminal_on_life_loss: bool = struct.static(False)  # whether a lost life ends an episode
    roms_dir: str | None = struct.static(None)  # the folder of ROMs, by default ale_py's
    num_threads: int | None = struct.static(None)  # of a batch; by default the cores we may use

    def __post_init__(self) -> None:
        name = type(self).__name__
        if self.obs_type not in _SHOWS:
            raise ParameterError(
                f"{name} got obs_type={self.obs_type!r}; expected {', '.join(map(repr, _SHOWS))}."
            )
        skip = self._skip
        for each in skip:
            check_integer(ParameterError, f"{name} got frameskip", each)
        if len(skip) != 2 or skip[0] >= skip[1]:
            raise ParameterError(
                f"{name} got frameskip={self.frameskip}; expected a number of frames, or the least"
                " number and one more than the largest."
            )
        for field, values in (
            ("stack_num", (self.stack_num,)),
            ("screen_size", self.screen_size),
            ("num_threads", (1 if self.num_threads is None else self.num_threads,)),
        ):
            for each in values:
                check_integer(ParameterError, f"{name} got {field}", each)
        check_integer(ParameterError, f"{name} got noop_max", self.noop_max, least=0)
        if len(self.screen_size) != 2 or max(self.screen_size) > machine.LARGEST:
            raise ParameterError(
                f"{name} got screen_size={self.screen_size}; expected a height and a width of at"
                f" most {machine.LARGEST} pixels."
            )
        _ = self._console  # raises if there is no such game

    @property
    def _skip(self) -> tuple[int, ...]:
        """The least number of frames in a step, and one more than the largest."""
        return (
            self.frameskip
            if isinstance(self.frameskip, tuple)
            else (self.frameskip, self.frameskip + 1)
        )

    @property
    def _console(self) -> machine.Console:
        return machine.Console.load(
            self.game, mode=self.mode, difficulty=self.difficulty, roms_dir=self.roms_dir
        )

    @property
    def _actions(self) -> np.ndarray:
        """ALE's numbers of the actions."""
        own = range(18) if self.full_action_space else self._console.rules.minimal
        return np.array(own, np.int32)

    @property
    def action_meanings(self) -> tuple[str, ...]:
        """ALE's names of the actions, such as "UPFIRE"."""
        return tuple(_MEANINGS[number] for number in self._actions)

    @property
    def _show(self) -> str:
        return "resized" if self.preprocessing else _SHOWS[self.obs_type]

    @property
    def observation_space(self) -> spaces.Box:
        shape = self._console.shape(self._show, self.screen_size)
        if self.preprocessing:
            shape = (self.stack_num, *shape)
        elif self.obs_type == "ram":
            shape = (128,)
        return spaces.Box(0, 255, shape, np.uint8)

    @property
    def action_space(self) -> spaces.Discrete | spaces.Box:
        if self.continuous:
            low, high = np.array([[0, -np.pi, 0], [1, np.pi, 1]], np.float32)
            return spaces.Box(low, high, (3,), np.float32)
        return spaces.Discrete(len(self._actions))

    def reset(self, key: chex.PRNGKey) -> tuple[AtariState, TimeStep]:
        noops = self.noop_max if self.preprocessing else 0
        fires = self.preprocessing and self.use_fire_reset and _FIRE in self._actions
        starts = _starts(self._console, self._show, self.screen_size, noops, fires)
        games, shown, lives, frames = map(jnp.asarray, starts)
        number = jax.random.randint(key, (), 0, len(games), jnp.int32)
        picture = shown[number]
        pictures = jnp.zeros(0, jnp.uint8)
        if self.preprocessing:
            pictures = jnp.broadcast_to(picture, (self.stack_num, *picture.shape))
        state = AtariState(
            game=games[number],
            action=jnp.int32(0),
            lives=lives[number],
            frames=frames[number],
            pictures=pictures,
        )
        return state, TimeStep.first(self._observe(state, picture), info=self._info(state))

    def step(
        self, state: AtariState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[AtariState, TimeStep]:
        actions = self._frames(state, action, key)
        game, numbers, pictures = self._console.play(
            state.game,
            actions,
            show=self._show,
            pooled=self.preprocessing,
            pictures=state.pictures if self.preprocessing else None,
            resized=self.screen_size,
            one_life=self.terminal_on_life_loss,
            num_threads=self.num_threads,
        )
        reward, lives, over, played = numbers
        frames, terminated = state.frames + played, over != 0
        if self.terminal_on_life_loss:
            terminated |= lives < state.lives
        state = AtariState(
            game=game,
            action=jnp.where(played > 0, actions[played - 1], state.action),
            lives=lives,
            frames=frames,
            pictures=pictures if self.preprocessing else state.pictures,
        )
        return state, TimeStep.transition(
            self._observe(state, pictures[-1]),
            reward=reward.astype(jnp.float32),
            terminated=terminated,
            truncated=frames >= self.max_num_frames_per_episode,
            info=self._info(state),
        )

    def _frames(self, state: AtariState, action: chex.Array, key: chex.PRNGKey) -> jax.Array:
        """Returns the actions of the frames of a step, -1 after the last."""
        skip_key, sticky_key = jax.random.split(key)
        least, most = self._skip
        count = jax.random.randint(skip_key, (), least, most, jnp.int32)
        count = jnp.minimum(count, self.max_num_frames_per_episode - state.frames)
        drawn = jax.random.uniform(sticky_key, (most - 1,), jnp.float32)
        wanted = self._number(action)
        previous, actions = state.action, []
        for frame in range(most - 1):
            previous = jnp.where(drawn[frame] < self.repeat_action_probability, previous, wanted)
            actions.append(jnp.where(frame < count, previous, -1))
        return jnp.stack(actions)

    def _number(self, action: chex.Array) -> jax.Array:
        """Returns an action as the machine takes it: int32[]."""
        if not self.continuous:
            return jnp.asarray(self._actions)[action]
        radius, angle, button = action
        x, y = radius * jnp.cos(angle), radius * jnp.sin(angle)
        least = self.continuous_action_threshold
        across = jnp.where(x > least, 1, jnp.where(x < -least, -1, 0))
        along = jnp.where(y > least, 1, jnp.where(y < -least, -1, 0))
        return machine.action_of(across, along, button > least, radius)

    def _observe(self, state: AtariState, picture: jax.Array) -> jax.Array:
        if self.preprocessing:
            return state.pictures
        return self._console.memory(state.game) if self.obs_type == "ram" else picture

    def _info(self, state: AtariState) -> dict[str, jax.Array]:
        return {"lives": state.lives, "episode_frame_number": state.frames}

    def render(self, state: AtariState) -> jax.Array:
        """Draws the screen of the next frame without input: uint8[height, 160, 3]."""
        return self._console.play(state.game, jnp.zeros(1, jnp.int32), show="rgb")[2][0]


@functools.cache
def _starts(
    console: machine.Console, show: str, resized: tuple[int, int], noops: int, fires: bool
) -> tuple[np.ndarray, ...]:
    """Returns games after ALE's reset, uint8[B, S], what they show, their lives, and frames since.

    With `noops`, they are those after 1 to `noops` more frames without input, and one with the
    button pressed if it `fires`.
    """
    timers = np.linspace(*machine.TIMERS, _NUM_BOOTS).astype(int)
    begun = [console.start(timer, show, resized) for timer in timers]
    games, shown, lives = (np.stack(each) for each in zip(*begun, strict=True))
    found: list[tuple[Any, Any, Any]] = [(games, shown, lives)]
    with jax.ensure_compile_time_eval():
        play = jax.vmap(functools.partial(console.play, show=show, resized=resized), (0, None))

        def after(games: Any, action: int) -> tuple[Any, Any, Any]:
            games, numbers, shown = play(jnp.asarray(games), jnp.full(1, action, jnp.int32))
            return np.asarray(games), np.asarray(shown[:, 0]), np.asarray(numbers[:, 1])

        for _ in range(noops):
            found.append(after(found[-1][0], 0))
        found = found[noops > 0 :]
        if fires:
            found = [after(games, _FIRE) for games, *_ in found]
    frames = np.arange(len(found)) + (noops > 0) + fires
    games, shown, lives = (np.concatenate(each) for each in zip(*found, strict=True))
    return games, shown, lives.astype(np.int32), np.repeat(frames, _NUM_BOOTS).astype(np.int32)
