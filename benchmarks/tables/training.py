"""Tables of trainings: their time and their returns."""

import jaxenvs
from benchmarks._common import OURS, markdown
from benchmarks.tables._cells import digits, median, ratios, table, times
from benchmarks.tables._reports import SETUP, XEON, load, measured, version

PUBLISHED = {  # scores in RL Baselines3 Zoo, or of CleanRL
    ("PPO", "MiniGrid-DoorKey-5x5-v0"): "0.96",
    ("PPO", "MiniGrid-FourRooms-v0"): "0.57",
    ("PPO", "MiniGrid-KeyCorridorS3R1-v0"): "0.95",
    ("PPO", "MiniGrid-Unlock-v0"): "0.96",
    ("PPO", "LunarLander-v3"): "242, 1,000,000 steps",
    ("DQN", "LunarLander-v3"): "154, 100,000 steps",
    ("PPO", "BipedalWalker-v3"): "288, 5,000,000 steps",
    ("PPO", "HalfCheetah-v5"): "5,819, 1,000,000 steps of version 3",
    ("PPO", "Hopper-v5"): "2,410, 1,000,000 steps of version 3",
    ("PPO", "Ant-v5"): "1,327, 1,000,000 steps of version 3",
    ("PPO", "ALE/Breakout-v5"): "415, CleanRL, 10,000,000 steps",
    ("PPO", "ALE/Pong-v5"): "20.4, CleanRL, 10,000,000 steps",
    ("PPO", "ALE/SpaceInvaders-v5"): "960, 10,000,000 steps",
    ("SAC", "HalfCheetah-v5"): "9,535, 1,000,000 steps of version 3",
    ("SAC", "Hopper-v5"): "2,326, 1,000,000 steps of version 3",
    ("SAC", "Ant-v5"): "4,616, 1,000,000 steps of version 3",
}


@table
def trainings() -> list[str]:
    """Returns seconds of whole training runs, and ratios to jaxenvs."""
    report = load("training")
    titles = "`jaxenvs.training`", "PureJaxRL", f"rejax {version(report, 'rejax')}"
    rows = []
    for case, name in (
        ("ppo-4x128", "PPO, CartPole-v1, 524,288 steps, 4 instances × 128 steps"),
        ("ppo-64x64", "64 × 64"),
        ("ppo-512x32", "512 × 32"),
        ("ppo-64x64-8seeds", "64 × 64, 8 seeds vmapped"),
        ("ppo-64x64-32seeds", "32 seeds"),
        ("dqn-cartpole", "DQN, CartPole-v1, 100,000 steps"),
        ("sac-pendulum", "SAC, Pendulum-v1, 6,000 steps"),
    ):
        ours = measured(report, case=case, contestant=OURS)["seconds"]
        cells = [digits(median(ours))]
        for peer in ("purejaxrl", "rejax"):
            theirs = measured(report, case=case, contestant=peer, missing_ok=True)
            seconds = theirs and theirs["seconds"]
            cells.append(
                f"{digits(median(seconds))} ({times(ratios(seconds, ours))})" if seconds else ""
            )
        rows.append([name, *cells])
    return [f"| | {' | '.join(titles)} |", *markdown(("", *titles), rows)[1:]]


@table
def minatar() -> list[str]:
    """Returns what the algorithms reach on MinAtar's games, beside published scores."""
    report, algorithms = load("learning"), ("PQN", "DQN", "PPO")
    published = "DQN of MinAtar's authors, 5,000,000 steps", "PPO of pgx, 20,000,000 steps"
    rows = []
    for game, dqn, ppo in (
        ("Asterix", "17", "22 to 25"),
        ("Breakout", "10", "50"),
        ("Freeway", "50", "63"),
        ("Seaquest", "20", "54"),
        ("SpaceInvaders", "43", "145 to 153"),
    ):
        cells = []
        for algorithm in algorithms:
            task = f"{algorithm} CNN MinAtar/{game}-v0"
            if entry := measured(report, task=task, missing_ok=True):
                middle, worst = (digits(choose(entry["scores"])) for choose in (median, min))
                cells.append(f"{middle} ({worst}), {entry['steps']:,} steps")
            else:
                cells.append("—")
        rows.append([game, *cells, dqn, ppo])
    return markdown(("", *algorithms, *published), rows)


@table
def minigrid_returns() -> list[str]:
    """Returns what is reached on levels of MiniGrid."""
    return returns("minigrid")


@table
def physics_returns() -> list[str]:
    """Returns what is reached on tasks of Box2D and MuJoCo."""
    return returns("box2d", "mujoco")


@table
def atari_returns() -> list[str]:
    """Returns what is reached on games of Atari."""
    return returns("atari")


def returns(*families: str) -> list[str]:
    """Returns what is reached on the ids of some families, beside published scores."""
    entries = [
        entry for setup in (SETUP, XEON) for entry in load("learning", setup)["measurements"]
    ]
    rows = []
    for entry in entries:
        spec = jaxenvs.registry.get(entry["id"])
        if spec is not None and spec.family in families:
            scores = entry["scores"]
            cells = (
                entry["task"],
                f"{entry['steps']:,}",
                str(len(scores)),
                digits(median(scores)),
                f"{digits(min(scores))}, {digits(max(scores))}",
                PUBLISHED.get((entry["task"].split()[0], entry["id"]), ""),
            )
            rows.append(cells)
    return markdown(("", "steps", "seeds", "median", "worst, best", "published"), rows)


@table
def agents() -> list[str]:
    """Returns what the greedy policies of several agents score."""
    rows = (
        (
            entry["task"],
            f"{entry['steps'] / 1e6:g} million",
            name,
            f"{median(values):.3g} ({min(values):.3g} to {max(values):.3g})",
        )
        for entry in load("agents")["measurements"]
        for name, values in entry["scores"].items()
    )
    return markdown(("task", "steps of one agent", "score", "median (range) of the seeds"), rows)
