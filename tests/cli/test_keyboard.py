"""A person plays: keys become actions, and episodes can be recorded."""

import gymnasium
import numpy as np
import pytest

import jaxenvs
from jaxenvs.cli.play import KEYS, action_of, controls_of, play
from jaxenvs.errors import ParameterError
from jaxenvs.rendering.window import Window
from tests.cli._running import run


class Script:
    """A window whose player does this with each frame: "+a" presses a key, "-a" releases it."""

    def __init__(self, *frames):
        self.frames, self.shown = [*frames], []

    def show(self, frame):
        self.shown.append(frame)

    def read_keys(self):
        now = self.frames.pop(0) if self.frames else "+escape"
        return [(change[1:].replace("_", " "), change[0] == "+") for change in now.split()]


def played(id, *frames, seed=0, **options):
    """Plays, and returns the steps, what was reported, and the frames that were shown."""
    env, window, reports = (
        jaxenvs.make_gym(id, render_mode="rgb_array", **options),
        Script(*frames),
        [],
    )
    steps = [*play(env, controls_of(id, env), window, seed, reports.append)]
    return steps, reports, window.shown


WAIT = None
CONTROLS = {
    "CartPole-v1": {(): WAIT, ("left",): 0, ("right",): 1, ("up",): WAIT},
    "MountainCar-v0": {(): 1, ("left",): 0, ("right",): 2},
    "Acrobot-v1": {(): 1, ("left",): 0, ("right",): 2},
    "FrozenLake-v1": {(): WAIT, ("left",): 0, ("down",): 1, ("right",): 2, ("up",): 3},
    "Taxi-v3": {(): WAIT, ("down",): 0, ("up",): 1, ("right",): 2, ("left",): 3, ("pick up",): 4},
    "Blackjack-v1": {(): WAIT, ("action 0",): 0, ("action 1",): 1},
    "LunarLander-v3": {(): 0, ("left",): 1, ("up",): 2, ("right",): 3, ("up", "fire"): 2},
    "MinAtar/Seaquest-v0": {(): 0, ("left",): 1, ("up",): 2, ("right",): 3, ("fire",): 5},
    "MinAtar/Breakout-v1": {(): 0, ("left",): 1, ("right",): 2, ("fire",): 0},
    "MiniGrid-Empty-5x5-v0": {(): WAIT, ("up",): 2, ("toggle",): 5, ("done",): 6, ("down",): WAIT},
    "bsuite/catch-v0": {(): 1, ("left",): 0, ("right",): 2},
    "Pendulum-v1": {(): [0], ("left",): [-2], ("right",): [2], ("up",): [0]},
    "PointRobot-misc": {(): [0, 0], ("left", "up"): [-0.1, 0.1], ("down",): [0, -0.1]},
    "LunarLanderContinuous-v3": {(): [0, 0], ("up",): [1, 0], ("up", "left"): [1, -1]},
}


@pytest.mark.parametrize("id", CONTROLS)
def test_words_are_actions_of(id):
    env = jaxenvs.make_gym(id)
    controls = controls_of(id, env)
    assert all(action in env.action_space for action in controls.values())
    for held, action in CONTROLS[id].items():
        found = action_of(controls, held)
        assert (found is WAIT) == (action is WAIT)
        if action is not WAIT:
            np.testing.assert_array_equal(found, np.array(action, env.action_space.dtype))
    words = frozenset().union(*controls)
    keys = [key for word in words for key in KEYS[word]]
    assert len({*keys}) == len(keys)  # a key has one meaning


def test_actions_of_several_keys_are_those_of_ale_py():
    pytest.importorskip("ale_py")
    id = "gymnasium/ALE/Breakout-v5"
    env = jaxenvs.make_gym(id, full_action_space=True, render_mode="rgb_array")
    controls = controls_of(id, env)
    words = {key: word for word in ("up", "left", "down", "right") for key in KEYS[word]}
    words |= {"space": "fire"}
    theirs = env.unwrapped.get_keys_to_action()
    assert len(theirs) == len(controls) == 18
    for keys, action in theirs.items():
        held = {words[key.replace(" ", "space")] for key in keys if key != "e"}  # nothing
        assert action_of(controls, held) == action
    env.close()


class Other(gymnasium.Env):
    def __init__(self, action_space):
        self.action_space = action_space


@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Discrete(37),
        gymnasium.spaces.MultiDiscrete([2, 2]),
        gymnasium.spaces.Box(-1, 1, (3,)),
        gymnasium.spaces.Box(-np.inf, np.inf, (1,)),
    ],
)
def test_actions_without_keys_are_refused(space):
    with pytest.raises(ParameterError, match="play got Other-v0, whose actions are"):
        controls_of("Other-v0", Other(space))


def test_actions_without_names_have_their_numbers_as_keys():
    controls = controls_of("Other-v0", Other(gymnasium.spaces.Discrete(36, start=-4)))
    assert [action_of(controls, {f"action {i}"}) for i in range(36)] == [*range(-4, 32)]
    assert (KEYS["action 9"], KEYS["action 10"], KEYS["action 35"]) == (("9",), ("a",), ("z",))


def test_a_level_waits_for_keys_and_is_solved():
    keys = ["+up", "-up +up", "", "", "+right", "-up -right +w", "+w"]
    steps, reports, shown = played("MiniGrid-Empty-5x5-v0", *keys)
    assert steps == [1, 2, 3, 4, 5] and len(shown) == len(keys) + 1
    assert reports[0] == "Episode 1: get to the green goal square"
    assert reports[1] == f"Return {1 - 0.9 * 5 / 100:g}, 5 steps." and len(reports) == 3
    assert (shown[2] == shown[3]).all() and (shown[1] != shown[2]).any()
    assert max(shown[0].shape) >= 300


def test_time_passes_while_a_key_is_held():
    steps, _, shown = played("MountainCar-v0", "", "+left", "", "-left", "")
    env = jaxenvs.make_gym("MountainCar-v0", render_mode="rgb_array")
    env.reset(seed=0)
    for action in (1, 0, 0, 1, 1):
        env.step(action)
    assert steps == [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(shown[-1], env.render())


def test_a_key_that_was_released_between_frames_counts_once():
    _, _, shown = played("MountainCar-v0", "+left -left", "")
    _, _, other = played("MountainCar-v0", "+left", "-left")
    np.testing.assert_array_equal(shown[-1], other[-1])


def test_each_episode_has_the_next_seed():
    _, reports, shown = played("CartPole-v1", "+left -left", "+backspace", "+left", seed=4)
    _, _, other = played("CartPole-v1", seed=5)
    assert reports == ["Episode 1", "Return 1, 1 steps.", "Episode 2"]
    np.testing.assert_array_equal(shown[2], other[0])


def post(pygame, key, is_down=True):
    kind = pygame.KEYDOWN if is_down else pygame.KEYUP
    pygame.event.post(pygame.event.Event(kind, key=key))


@pytest.fixture
def player(monkeypatch):
    """Returns a function that takes the keys that a player presses, one with each frame."""
    pygame, show = pytest.importorskip("pygame"), Window.show

    def plays(*keys):
        rest = iter(keys)

        def press(self, frame):
            show(self, frame)
            post(pygame, getattr(pygame, f"K_{next(rest, 'ESCAPE')}"))

        monkeypatch.setattr(Window, "show", press)

    return plays


def test_play_shows_the_keys_and_plays_in_a_window(capsys, player):
    player("UP", "UP", "RIGHT", "UP")
    status, printed = run(capsys, "play", "MiniGrid-Empty-5x5-v0", "--fps", 1000)
    assert status == 0 and "tab, page up" in printed and "escape" in printed
    assert "Episode 1: get to the green goal square" in printed and "Episode 2" not in printed


def test_a_window_names_keys_and_its_closing():
    pygame = pytest.importorskip("pygame")
    window = Window(1000)
    window.show(np.zeros((8, 8, 3), np.uint8))
    post(pygame, pygame.K_PAGEUP)
    post(pygame, pygame.K_a, is_down=False)
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    assert [*window.read_keys()] == [("page up", True), ("a", False), ("escape", True)]
    assert not [*window.read_keys()]
    window.close()


def test_keys_are_shown_without_a_window(capsys, monkeypatch):
    monkeypatch.setattr(Window, "show", None)
    status, printed = run(capsys, "play", "MinAtar/Breakout-v1", "--keys")
    assert status == 0 and "left, a" in printed and "fire" not in printed


@pytest.mark.interop
def test_what_was_played_is_recorded(capsys, monkeypatch, player, tmp_path):
    minari = pytest.importorskip("minari")
    from jaxenvs.faces.minari import from_minari

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    player("RIGHT", "LEFT", "BACKSPACE", "a")
    arguments = ["play", "CartPole-v1", "--record", "cartpole/human-v0", "--seed", 3, "--fps", 1000]
    status, printed = run(capsys, *arguments)
    assert status == 0 and "Wrote cartpole/human-v0: 2 episodes, 3 steps." in printed
    dataset = minari.load_dataset("cartpole/human-v0")
    assert [each["seed"] for each in dataset.storage.get_episode_metadata([0, 1])] == [3, 4]
    data = from_minari(dataset)
    assert data.action.tolist() == [1, 0, 0] and data.truncated.tolist() == [False, True, True]
    env = dataset.recover_environment()
    np.testing.assert_array_equal(data.observation[2], env.reset(seed=4)[0])
    np.testing.assert_array_equal(data.final_observation[2], env.step(0)[0])

    status, printed = run(capsys, *arguments)
    assert status == 2 and "--record cartpole/human-v0, which exists" in printed
    status, printed = run(capsys, "play", "CartPole-v1", "--record", "no name")
    assert status == 2 and "--record no name" in printed
