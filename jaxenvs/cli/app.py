"""The command line parser. Each command is a function in its own module."""

import argparse
import importlib
import math
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import jaxenvs
from jaxenvs._entry_points import import_module
from jaxenvs.errors import InstallationError, JaxenvsError, TrainingError

ALGORITHMS = ("a2c", "dqn", "ppo", "pqn", "sac", "td3", "vpg")

_HELP = {
    "": """\
Environments and training for reinforcement learning.

examples:
  jaxenvs list                              all environments
  jaxenvs info CartPole-v1                  spaces, parameters, limits
  jaxenvs train ppo CartPole-v1             train, with tuned settings
  jaxenvs eval runs/ppo/CartPole-v1         evaluate the policy
  jaxenvs enjoy runs/ppo/CartPole-v1        watch the policy
  jaxenvs render Pendulum-v1 -o swing.gif   render random actions
  jaxenvs play MiniGrid-DoorKey-5x5-v0      play with the keyboard
  jaxenvs train --help                      help for a command""",
    "list": """\
List the environments.

examples:
  jaxenvs list
  jaxenvs list car                          ids that contain "car", ignoring case
  jaxenvs list --family classic_control
  jaxenvs list --suite brax                 what the installed version of brax has
  jaxenvs list --json                       for other programs""",
    "info": """\
Show an environment: spaces, parameters with defaults and units, limits, source.

examples:
  jaxenvs info CartPole-v1
  jaxenvs info gymnasium/Ant-v5             an environment not written in JAX
  jaxenvs info grid.py:Grid                 an environment of your own""",
    "train": """\
Train an agent in a jitted program, with settings tuned for the id.

The output folder contains config.toml, metrics.csv, metrics.jsonl, checkpoint/ and policy/, and
learning_curve.png if the extra `render` is installed. `jaxenvs eval`, `enjoy` and
`render --checkpoint` read it. With --evaluate-every, best/ is the policy of the best evaluation.
With several seeds, each seed has a subfolder. Ctrl-C saves and stops.

examples:
  jaxenvs train ppo CartPole-v1
  jaxenvs train sac Pendulum-v1 --total-steps 20_000 --seed 7
  jaxenvs train ppo Acrobot-v1 --seeds 8 --output runs/acrobot
  jaxenvs train ppo CartPole-v1 --set learning_rate=3e-4 --set actor.hidden_sizes=64,64
  jaxenvs train ppo CartPole-v1 --set actor.memory=gru --set actor.memory_size=64
  jaxenvs train dqn CartPole-v1 --set storage.type=PrioritizedReplay --set storage.n_step=3
  jaxenvs train ppo Acrobot-v1 --evaluate-every 50_000 --save-every 100_000
  jaxenvs train ppo CartPole-v1 --collection remote:3:async --set storage.type=VTrace
  jaxenvs train ppo CartPole-v1 --gradients remote:2 --update decentralized
  jaxenvs train dqn CartPole-v1 --dry-run > mine.toml
  jaxenvs train --config mine.toml          train from your own file
  jaxenvs train --resume runs/acrobot       continue a run
  jaxenvs train --resume runs/acrobot --total-steps 1e6    train longer
  jaxenvs train --resume runs/acrobot --num-envs 64        with other instances
  jaxenvs train ppo gymnasium/CartPole-v1   an environment in worker processes
  jaxenvs train ppo grid.py:Grid            an environment of your own
  jaxenvs train ppo Grid-v0 --import grid   an id that grid.py registers
  jaxenvs train mine.py:KLPPO CartPole-v1 --set actor.type=mine.py:Net    your own parts""",
    "eval": """\
Play new episodes with trained greedy policies, and show their returns.

Each instance plays the same number of whole episodes, so short ones do not count more. Runs with
the same configuration are shown separately and together.

examples:
  jaxenvs eval runs/ppo/CartPole-v1
  jaxenvs eval runs/acrobot --episodes 1000 --seed 1
  jaxenvs eval runs/acrobot --which best    after train --evaluate-every
  jaxenvs eval runs/ppo/CartPole-v1 runs/dqn/CartPole-v1
  jaxenvs eval CartPole-v1                  a pretrained policy""",
    "enjoy": """\
Render a trained policy as gif, mp4 or png, or in a window.

examples:
  jaxenvs enjoy CartPole-v1                 a pretrained policy; writes CartPole-v1.gif
  jaxenvs enjoy runs/ppo/CartPole-v1        writes episode.gif to the run's folder
  jaxenvs enjoy runs/ppo/CartPole-v1 -o balance.mp4 --episodes 3
  jaxenvs enjoy runs/acrobot/seed_2 --window""",
    "play": """\
Play an environment with the keyboard, in a window, and record it as a Minari data set.

Time passes while no key is held, unless every action needs a key.

examples:
  jaxenvs play CartPole-v1
  jaxenvs play MiniGrid-DoorKey-5x5-v0 --keys     show the keys and exit
  jaxenvs play MinAtar/Breakout-v1 --fps 5 --record minatar/human-v0""",
    "plot": """\
Plot learning curves: median and quartiles of the runs of each configuration.

examples:
  jaxenvs plot runs/acrobot -o acrobot.png
  jaxenvs plot runs/ppo/CartPole-v1 runs/dqn/CartPole-v1 -o compared.svg
  jaxenvs plot runs/acrobot --metric entropy -o entropy.png""",
    "compare": """\
Compare the final scores of runs: interquartile mean (IQM), mean, 95 % bootstrap intervals, and the
probability that a run is better than one of the first group.

Runs of an id are a group if only their seeds differ. Groups are named as by `plot`: by their
algorithm and by settings that differ between its groups. A run's score is the last value of the
metric. With --scale for every id, groups of the same name are also compared over all ids.

examples:
  jaxenvs compare runs/ppo/CartPole-v1 runs/dqn/CartPole-v1
  jaxenvs compare runs --metric evaluation_return -o compared.png
  jaxenvs compare runs --scale CartPole-v1=20,500 --scale Acrobot-v1=-500,-80
  jaxenvs compare runs --json               for other programs""",
    "bsuite": """\
Run an agent through the experiments of bsuite, the Behaviour Suite for Reinforcement Learning.

The output folder contains a CSV file per setting in bsuite's format, and radar.png. bsuite's own
package computes the scores. Experiments whose records are in the folder are not played again.

examples:
  jaxenvs bsuite random                     the baseline, all 23 experiments
  jaxenvs bsuite dqn --experiments bandit,catch,deep_sea
  jaxenvs bsuite ppo --episodes 100         the first 100 episodes of each setting
  jaxenvs bsuite a2c --set learning_rate=1e-3 --output runs/mine""",
    "render": """\
Play one episode and write it as a gif, an mp4 or a png (a strip of eight frames).

examples:
  jaxenvs render CartPole-v1 -o random.gif
  jaxenvs render CartPole-v1 -o trained.mp4 --checkpoint runs/ppo/CartPole-v1
  jaxenvs render Acrobot-v1 -o strip.png --seed 3 --max-steps 100""",
    "sweep": """\
Search for hyperparameters: train many settings with the same seeds, and rank them.

Trials whose programs differ only in numbers train side by side in one program. With several rungs,
all trials train for a part of the steps, and the best of them for longer (successive halving). The
output folder contains trials.jsonl, with a line for each trial and rung, best.toml, and sweep.png.
The same command continues a sweep that was interrupted.

examples:
  jaxenvs sweep ppo CartPole-v1 --search learning_rate=1e-4..1e-2:log --search clip=0.1,0.2,0.3
  jaxenvs sweep ppo Acrobot-v1 --search gamma=0.9..0.999 --trials 27 --rungs 3
  jaxenvs sweep dqn CartPole-v1 --search "actor.hidden_sizes=[[64], [64, 64]]" --sampler random
  jaxenvs sweep ppo CartPole-v1 --space space.toml --metric evaluation_return
  jaxenvs sweep ppo CartPole-v1 --search num_envs=8,16,32 --dry-run    print the trials""",
    "tune-pool": """\
Measure every pool backend for N environments not written in JAX; backend="auto" then uses the
fastest. The environments take random actions.

examples:
  jaxenvs tune-pool gymnasium/CartPole-v1 --num-envs 64
  jaxenvs tune-pool gymnasium/Ant-v5 --num-envs 16 --batch-size 8
  jaxenvs tune-pool gymnasium/ALE/Pong-v5 --num-envs 16 --dry-run""",
    "doctor": """\
Show the installation: versions, devices, cores, memory, the native part of the host bridge,
extras, environment variables. Exits with 2 if JAX does not start, or if a requested part is
missing.

examples:
  jaxenvs doctor
  jaxenvs doctor native atari               require the native part and the extra atari
  jaxenvs doctor --json""",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: the command line arguments; None means those of `sys.argv`.

    Returns:
        The exit status: 0; 2 for invalid arguments or a missing package; or 128 plus the number of
        the signal that stopped a training run.
    """
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions
        importlib.import_module("jaxenvs.cli.completion").complete(parser)
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        if options.command == "train" and options.config is options.resume is options.id is None:
            raise TrainingError(  # before JAX is imported
                "train got no id.  Pass an algorithm and an id: jaxenvs train ppo CartPole-v1; or"
                " pass --config."
            )
        if getattr(options, "device", None) is not None:
            _choose_device(options.command, options.device)
        # Imported here, so `--help` does not wait for the imports of a command.
        command = importlib.import_module(f"jaxenvs.cli.{options.module}")
        if not sys.flags.safe_path and os.getcwd() not in sys.path:  # like `python -m`
            sys.path.insert(0, os.getcwd())
        for name in getattr(options, "imports", ()):
            import_module(name, f"--import {name}")
        return command.run(options) or 0
    except JaxenvsError as error:
        print(f"jaxenvs {options.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        sys.stderr.close()
    except KeyboardInterrupt:  # `train` saves first and returns the same
        return 128 + signal.SIGINT
    return 0


def _choose_device(command: str, device: str) -> None:
    """Starts JAX on a device of this kind.

    Raises:
        InstallationError: JAX does not start, or starts on another kind of device.
    """
    os.environ.pop("JAX_PLATFORMS", None)  # without it, JAX prefers an accelerator
    if device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    jax = importlib.import_module("jax")
    try:
        found = jax.default_backend()
    except RuntimeError as error:
        raise InstallationError(f"{command} got --device {device}, but {error}") from error
    if found != device:
        raise InstallationError(
            f"{command} got --device {device}, but JAX runs on a {found.upper()}.  `jaxenvs doctor`"
            " shows the devices that JAX finds."
        )


def _parser() -> argparse.ArgumentParser:
    parser = _described(argparse.ArgumentParser(prog="jaxenvs"), "")
    parser.add_argument("--version", action="version", version=f"jaxenvs {jaxenvs.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    listing = _command(commands, "list", "listing", "list environments")
    listing.add_argument("filter", nargs="?", default="", help="part of an id")
    listing.add_argument("--family", help="only this family")
    listing.add_argument("--suite", help="the ids of another JAX library, such as brax")
    _add(listing, "--import")
    _add(listing, "--json")

    info = _command(commands, "info", "info", "show an environment")
    _add(info, "id")
    _add(info, "--import")
    _add(info, "--json")

    train = _command(commands, "train", "train", "train an agent")
    names, own = ", ".join(ALGORITHMS), "or module:Class or file.py:Class for your own"
    _add(train, "algorithm", nargs="?", help=f"{names}; {own}")
    _add(train, "id", nargs="?")
    _add(train, "--import")
    train.add_argument("--config", metavar="FILE", help="a configuration in TOML")
    _add(train, "--set")
    for name, what in {
        "--num-envs": "instances (default: tuned)",
        "--unroll-length": "steps between updates (default: tuned)",
        "--total-steps": "environment steps (default: tuned)",
        "--report-every": "updates per row of metrics (default: about 200 rows)",
        "--save-every": "environment steps between checkpoints (default: one at the end)",
        "--evaluate-every": "environment steps between evaluations; keeps the best policy",
        "--evaluation-episodes": "episodes per evaluation (default: 20)",
        "--seeds": "train N seeds in one program, starting with --seed",
    }.items():
        _add_number(train, name, help=what)
    _add(train, "--seed", default=None, help="of everything random (default: 0)")
    for name in ("collection", "gradients"):
        where = f"where {name} run: central, remote:N or remote:N:async"
        train.add_argument(f"--{name}", metavar="WHERE", help=where)
    how = "decentralized: each gradient worker applies the mean to its own weights"
    train.add_argument("--update", metavar="HOW", help=how)
    train.add_argument("--output", metavar="DIR", help="(default: a new one, runs/ALGORITHM/ID)")
    train.add_argument(
        "--log",
        metavar="KIND",
        action="append",
        default=["csv", "jsonl"],
        help="also log to tensorboard or wandb; can be repeated",
    )
    train.add_argument("--resume", metavar="DIR", help="continue the run in this folder")
    _add(train, "--dry-run", help="print the complete configuration and exit")
    _add(train, "--device")

    search = _command(commands, "sweep", "sweep", "search for hyperparameters")
    _add(search, "algorithm", nargs="?", help=f"{names}; {own}")
    _add(search, "id", nargs="?")
    _add(search, "--import")
    search.add_argument("--config", metavar="FILE", help="a configuration in TOML")
    _add(search, "--set")
    search.add_argument(
        "--search",
        metavar="NAME=VALUES",
        help="LOW..HIGH, LOW..HIGH:log, or A,B,C of a name as for --set; can be repeated",
        **_REPEATED,
    )
    search.add_argument("--space", metavar="FILE", help="the same as a table in TOML")
    for name, default, what in (
        ("--trials", 16, "settings to try"),
        ("--seeds", 3, "seeds of each trial, starting with --seed"),
        ("--rungs", 1, "rungs of successive halving"),
        ("--factor", 3, "of a rung to the next: times fewer trials, and more steps"),
        ("--parallel", 8, "trials in one program at most"),
        ("--num-envs", None, "instances (default: tuned)"),
        ("--unroll-length", None, "steps between updates (default: tuned)"),
        ("--total-steps", None, "environment steps of the last rung (default: tuned)"),
        ("--evaluation-episodes", None, "for --metric evaluation_return (default: 20)"),
    ):
        _add_number(search, name, default=default, help=what)
    how = "how trials are drawn"
    search.add_argument("--sampler", choices=["sobol", "random"], default="sobol", help=how)
    _add(search, "--metric", help="the score: a column of metrics.csv, or evaluation_return")
    _add(search, "--seed", default=None, help="of everything random (default: 0)")
    output = "(default: runs/sweep/ALGORITHM/ID)"
    search.add_argument("--output", metavar="DIR", help=output)
    _add(search, "--dry-run", help="print the trials as JSON and exit")
    _add(search, "--device")
    others = ("report_every", "save_every", "evaluate_every", "collection", "gradients", "update")
    search.set_defaults(**dict.fromkeys(others))

    evaluate = _command(commands, "eval", "evaluate", "evaluate trained policies")
    _add(evaluate, "runs", help=_PLAYABLE)
    _add_number(evaluate, "--episodes", default=100, help="episodes per run")
    _add(evaluate, "--seed")
    limit = "limit of an episode (default: the time limit, or 10,000 steps)"
    _add_number(evaluate, "--max-steps", help=limit)
    _add(evaluate, "--which")
    _add(evaluate, "--device")

    enjoy = _command(commands, "enjoy", "enjoy", "watch a trained policy")
    enjoy.add_argument("run", metavar="RUN", help=_PLAYABLE)
    _add_file(enjoy, help=".gif, .mp4 or .png (default: RUN/episode.gif, or ID.gif)")
    enjoy.add_argument("--window", action="store_true", help="show it on the screen instead")
    _add_number(enjoy, "--episodes", default=1, help="episodes to play")
    _add_playing(enjoy)

    play = _command(commands, "play", "play", "play with the keyboard")
    _add(play, "id")
    _add(play, "--import")
    record = "the name of a new Minari data set, such as cartpole/human-v0"
    play.add_argument("--record", metavar="NAME", help=record)
    play.add_argument("--keys", action="store_true", help="show the keys and exit")
    fps = "steps per second (default: 15 for Atari, 10 for MinAtar, else 30)"
    play.add_argument("--fps", type=float, metavar="N", help=fps)
    _add(play, "--seed")

    compare = _command(commands, "compare", "compare", "compare the final scores of runs")
    _add(compare, "runs")
    _add(compare, "--metric")
    scale = "scores of ID that become 0 and 1, to compare over several ids; can be repeated"
    compare.add_argument("--scale", metavar="ID=LOW,HIGH", help=scale, **_REPEATED)
    _add_file(compare, help="intervals and performance profiles, as .png, .svg or .pdf")
    _add(compare, "--json")

    plot = _command(commands, "plot", "plot", "plot learning curves")
    _add(plot, "runs")
    _add_file(plot, required=True, help=".png, .svg or .pdf")
    _add(plot, "--metric")
    plot.add_argument("--title", metavar="TEXT", help="(default: the ids)")

    bsuite = _command(commands, "bsuite", "bsuite", "run an agent through bsuite's experiments")
    _add(bsuite, "algorithm", help="a2c, dqn, ppo, pqn, sac, vpg or random")
    bsuite.add_argument("--experiments", metavar="NAMES", help="separated by commas (default: all)")
    for name, what in {
        "--episodes": "episodes of each setting (default: bsuite's, 1,000 or 10,000)",
        "--num-envs": "instances that each agent plays at once (default: 1, as in bsuite)",
        "--unroll-length": "steps between updates",
    }.items():
        _add_number(bsuite, name, help=what)
    what = "set a hyperparameter, actor.NAME or storage.NAME; can be repeated"
    _add(bsuite, "--set", help=what)
    _add(bsuite, "--seed")
    bsuite.add_argument("--output", metavar="DIR", help="(default: runs/bsuite/ALGORITHM)")
    _add(bsuite, "--device")

    render = _command(commands, "render", "render", "render an episode as gif, mp4 or png")
    _add(render, "id")
    _add(render, "--import")
    _add_file(render, required=True, help=".gif, .mp4 or .png")
    run = "an output folder of `train` (default: random)"
    render.add_argument("--checkpoint", metavar="DIR", help=run)
    _add_playing(render)

    fastest = "find the fastest backend for hosted environments"
    tune = _command(commands, "tune-pool", "tune_pool", fastest)
    _add(tune, "id")
    _add(tune, "--import")
    _add_number(tune, "--num-envs", default=16, help="environments")
    _add_number(tune, "--batch-size", metavar="B", help="results per recv (default: all)")
    seconds = "measuring time per configuration"
    tune.add_argument("--seconds", type=float, metavar="S", default=0.5, help=seconds)
    _add(tune, "--dry-run", help="print the table without saving the result")

    doctor = _command(commands, "doctor", "doctor", "check the installation")
    needed = 'a required part: "native" or an extra'
    doctor.add_argument("needed", nargs="*", metavar="NAME", help=needed)
    _add(doctor, "--json")
    return parser


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Does not reflow descriptions and examples, and adds defaults to the help of options."""

    def _get_help_string(self, action: argparse.Action) -> str:
        is_value = type(action.default) in (int, float, str) and action.default != argparse.SUPPRESS
        is_shown = is_value and action.option_strings
        return f"{action.help} (default: %(default)s)" if is_shown else action.help or ""


def _command(commands, name: str, module: str, summary: str) -> argparse.ArgumentParser:
    parser = _described(commands.add_parser(name, help=summary), name)
    parser.set_defaults(module=module)
    return parser


def _described(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    """Puts the description above the options and the examples below them."""
    description, _, examples = _HELP[name].partition("\n\nexamples:")
    parser.description, parser.epilog = description, f"examples:{examples}"
    parser.formatter_class = _Formatter
    return parser


def _add(parser: argparse.ArgumentParser, name: str, **changes: Any) -> None:
    """Adds an argument that several commands have."""
    parser.add_argument(name, **{**_SHARED[name], **changes})


def _add_file(parser: argparse.ArgumentParser, **settings: Any) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", **settings)


def _add_number(parser: argparse.ArgumentParser, name: str, **settings: Any) -> None:
    parser.add_argument(name, **{"type": _whole_number, "metavar": "N", **settings})


def _add_playing(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--which")
    _add_number(parser, "--max-steps", default=1000, help="limit of an episode")
    parser.add_argument("--fps", type=float, metavar="N", default="30", help="frames per second")
    _add(parser, "--seed")
    _add(parser, "--device")


def _whole_number(text: str) -> int:
    """Parses an integer: 100000, 100_000 or 1e5."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number.is_integer():
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer")
    return int(number)


def _seed(text: str) -> int:
    """Parses a seed for a random key."""
    number = _whole_number(text)
    if not 0 <= number < 2**32:
        raise argparse.ArgumentTypeError(
            f"{text} is not a valid seed; pass a number from 0 to {2**32 - 1}"
        )
    return number


_PLAYABLE = "an output folder of `train`; or an id or .npz file with a pretrained policy"
_REPEATED: dict[str, Any] = {"action": "append", "default": []}
_SHARED: dict[str, dict[str, Any]] = {
    "algorithm": {"metavar": "ALGORITHM"},
    "id": {
        "metavar": "ID",
        "help": "an id, see `jaxenvs list`; or module:Class or file.py:Class for your own"
        " environment",
    },
    "runs": {"metavar": "RUN", "nargs": "+", "help": "an output folder of `train`"},
    "--import": {
        "dest": "imports",
        "metavar": "MODULE",
        "help": "a module or a file.py that registers ids; can be repeated",
        **_REPEATED,
    },
    "--set": {
        "metavar": "NAME=VALUE",
        "help": "set a hyperparameter, or (actor|storage|scheme|env).NAME; can be repeated",
        **_REPEATED,
    },
    "--metric": {
        "metavar": "NAME",
        "default": "episode_return",
        "help": "a column of metrics.csv",
    },
    "--seed": {"type": _seed, "metavar": "N", "default": 0, "help": "of everything random"},
    "--which": {
        "choices": ["latest", "best"],
        "default": "latest",
        "help": "the last policy, or the one of the best evaluation",
    },
    "--dry-run": {"action": "store_true"},
    "--device": {
        "choices": ["cpu", "gpu", "tpu"],
        "help": "what to compute on (default: an accelerator, if JAX finds one)",
    },
    "--json": {"action": "store_true", "help": "as JSON"},
}
