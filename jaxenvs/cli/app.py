"""The command line parser. Each command is a function in its own module."""

import argparse
import importlib
import math
import os
import signal
import sys
from collections.abc import Sequence

import jaxenvs
from jaxenvs._entry_points import import_module
from jaxenvs.errors import JaxenvsError, TrainingError

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
  jaxenvs train --help                      help for a command""",
    "list": """\
List the environments.

examples:
  jaxenvs list
  jaxenvs list car                          ids that contain "car", ignoring case
  jaxenvs list --family classic_control
  jaxenvs list --suite brax                 what the installed version of brax has""",
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
  jaxenvs eval runs/ppo/CartPole-v1 runs/dqn/CartPole-v1""",
    "enjoy": """\
Render a trained policy as gif, mp4 or png, or in a window.

examples:
  jaxenvs enjoy runs/ppo/CartPole-v1        writes episode.gif to the run's folder
  jaxenvs enjoy runs/ppo/CartPole-v1 -o balance.mp4 --episodes 3
  jaxenvs enjoy runs/acrobot/seed_2 --window""",
    "plot": """\
Plot learning curves: median and quartiles of the runs of each configuration.

examples:
  jaxenvs plot runs/acrobot -o acrobot.png
  jaxenvs plot runs/ppo/CartPole-v1 runs/dqn/CartPole-v1 -o compared.svg
  jaxenvs plot runs/acrobot --metric entropy -o entropy.png""",
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
    "tune": """\
Measure every pool backend for N environments not written in JAX; backend="auto" then uses the
fastest. The environments take random actions.

examples:
  jaxenvs tune gymnasium/CartPole-v1 --num-envs 64
  jaxenvs tune gymnasium/Ant-v5 --num-envs 16 --batch-size 8
  jaxenvs tune gymnasium/ALE/Pong-v5 --num-envs 16 --dry-run""",
    "doctor": """\
Show the installation: versions, devices, cores, memory, the native part of the host bridge,
extras, environment variables. Exits with 2 if JAX does not start, or if a requested part is
missing.

examples:
  jaxenvs doctor
  jaxenvs doctor native atari               require the native part and the extra atari
  jaxenvs doctor --json""",
}

_ID = "an id, see `jaxenvs list`; or module:Class or file.py:Class for your own environment"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: the command line arguments; None means those of `sys.argv`.

    Returns:
        The exit status: 0; 2 for invalid arguments or a missing package; or 128 plus the number of
        the signal that stopped a training run.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        if options.command == "train":
            _check_train(options)
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


def _check_train(options: argparse.Namespace) -> None:
    """Raises TrainingError if there is nothing to train, before JAX is imported."""
    if options.config is None and options.resume is None and options.id is None:
        raise TrainingError(
            "train got no id.  Pass an algorithm and an id: jaxenvs train ppo CartPole-v1; or pass"
            " --config."
        )


def _parser() -> argparse.ArgumentParser:
    parser = _described(argparse.ArgumentParser(prog="jaxenvs"), "")
    parser.add_argument("--version", action="version", version=f"jaxenvs {jaxenvs.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    listing = _command(commands, "list", "listing", "list environments")
    listing.add_argument("filter", nargs="?", default="", help="part of an id")
    listing.add_argument("--family", help="only this family")
    listing.add_argument("--suite", help="the ids of another JAX library, such as brax")
    _add_import(listing)

    info = _command(commands, "info", "info", "show an environment")
    _add_id(info)

    train = _command(commands, "train", "train", "train an agent")
    train.add_argument(
        *("algorithm",),
        metavar="ALGORITHM",
        nargs="?",
        help="a2c, dqn, ppo, pqn, sac, td3 or vpg; or module:Class or file.py:Class for your own",
    )
    train.add_argument("id", metavar="ID", nargs="?", help=_ID)
    _add_import(train)
    train.add_argument("--config", metavar="FILE", help="a configuration in TOML")
    train.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="set a hyperparameter, or (actor|storage|scheme|env).NAME; can be repeated",
    )
    for name, what in (
        ("--num-envs", "instances (default: tuned)"),
        ("--unroll-length", "steps between updates (default: tuned)"),
        ("--total-steps", "environment steps (default: tuned)"),
        ("--report-every", "updates per row of metrics (default: about 200 rows)"),
        ("--save-every", "environment steps between checkpoints (default: one at the end)"),
        ("--evaluate-every", "environment steps between evaluations; keeps the best policy"),
        ("--evaluation-episodes", "episodes per evaluation (default: 20)"),
        ("--seeds", "train N seeds in one program, starting with --seed"),
    ):
        _add_number(train, name, what)
    _add_seed(train, default=None)
    for name, what in (("--collection", "collection"), ("--gradients", "gradients")):
        train.add_argument(
            name, metavar="WHERE", help=f"where {what} run: central, remote:N or remote:N:async"
        )
    train.add_argument(
        "--update",
        metavar="HOW",
        help="decentralized: each gradient worker applies the mean to its own weights",
    )
    train.add_argument("--output", metavar="DIR", help="(default: a new one, runs/ALGORITHM/ID)")
    train.add_argument(
        "--log",
        metavar="KIND",
        action="append",
        default=["csv", "jsonl"],
        help="also log to tensorboard or wandb; can be repeated",
    )
    train.add_argument("--resume", metavar="DIR", help="continue the run in this folder")
    train.add_argument(
        "--dry-run", action="store_true", help="print the complete configuration and exit"
    )

    evaluate = _command(commands, "eval", "evaluate", "evaluate trained policies")
    evaluate.add_argument("runs", metavar="RUN", nargs="+", help="an output folder of `train`")
    _add_number(evaluate, "--episodes", "episodes per run (default: 100)", default=100)
    _add_seed(evaluate)
    _add_number(
        evaluate, "--max-steps", "limit of an episode (default: the time limit, or 10,000 steps)"
    )

    _add_which(evaluate)

    enjoy = _command(commands, "enjoy", "enjoy", "watch a trained policy")
    enjoy.add_argument("run", metavar="RUN", help="an output folder of `train`")
    enjoy.add_argument(
        *("-o", "--output"), metavar="FILE", help=".gif, .mp4 or .png (default: RUN/episode.gif)"
    )
    enjoy.add_argument("--window", action="store_true", help="show it on the screen instead")
    _add_number(enjoy, "--episodes", "(default: 1)", default=1)
    _add_which(enjoy)
    _add_playing(enjoy)

    plot = _command(commands, "plot", "plot", "plot learning curves")
    plot.add_argument("runs", metavar="RUN", nargs="+", help="an output folder of `train`")
    plot.add_argument("-o", "--output", metavar="FILE", required=True, help=".png, .svg or .pdf")
    plot.add_argument(
        "--metric",
        metavar="NAME",
        default="episode_return",
        help="a column of metrics.csv (default: episode_return)",
    )
    plot.add_argument("--title", metavar="TEXT", help="(default: the ids)")

    bsuite = _command(commands, "bsuite", "bsuite", "run an agent through bsuite's experiments")
    bsuite.add_argument(
        "algorithm", metavar="ALGORITHM", help="a2c, dqn, ppo, pqn, sac, vpg or random"
    )
    bsuite.add_argument("--experiments", metavar="NAMES", help="separated by commas (default: all)")
    for name, what in (
        ("--episodes", "episodes of each setting (default: bsuite's, 1,000 or 10,000)"),
        ("--num-envs", "instances that each agent plays at once (default: 1, as in bsuite)"),
        ("--unroll-length", "steps between updates"),
    ):
        _add_number(bsuite, name, what)
    bsuite.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="set a hyperparameter, actor.NAME or storage.NAME; can be repeated",
    )
    _add_seed(bsuite)
    bsuite.add_argument("--output", metavar="DIR", help="(default: runs/bsuite/ALGORITHM)")

    render = _command(commands, "render", "render", "render an episode as gif, mp4 or png")
    _add_id(render)
    render.add_argument("-o", "--output", metavar="FILE", required=True, help=".gif, .mp4 or .png")
    render.add_argument(
        "--checkpoint", metavar="DIR", help="an output folder of `train` (default: random)"
    )
    _add_which(render)
    _add_playing(render)

    tune = _command(commands, "tune", "tune", "find the fastest backend for hosted environments")
    _add_id(tune)
    _add_number(tune, "--num-envs", "(default: 16)", default=16)
    _add_number(tune, "--batch-size", "results per recv (default: all)", metavar="B")
    tune.add_argument(
        *("--seconds",),
        type=float,
        metavar="S",
        default=0.5,
        help="measuring time per configuration (default: 0.5)",
    )
    tune.add_argument(
        "--dry-run", action="store_true", help="print the table without saving the result"
    )

    doctor = _command(commands, "doctor", "doctor", "check the installation")
    doctor.add_argument(
        "needed", nargs="*", metavar="NAME", help='a required part: "native" or an extra'
    )
    doctor.add_argument("--json", action="store_true", help="as JSON")
    return parser


def _command(commands, name: str, module: str, summary: str) -> argparse.ArgumentParser:
    parser = _described(commands.add_parser(name, help=summary), name)
    parser.set_defaults(module=module)
    return parser


def _described(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    """Puts the description above the options and the examples below them, without reflowing."""
    description, _, examples = _HELP[name].partition("\n\nexamples:")
    parser.description, parser.epilog = description, f"examples:{examples}"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    return parser


def _add_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help=_ID)
    _add_import(parser)


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--import",
        dest="imports",
        metavar="MODULE",
        action="append",
        default=[],
        help="a module or a file.py that registers ids; can be repeated",
    )


def _add_which(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--which",
        choices=["latest", "best"],
        default="latest",
        help="the last policy, or the one of the best evaluation (default: latest)",
    )


def _add_playing(parser: argparse.ArgumentParser) -> None:
    _add_number(parser, "--max-steps", "limit of an episode (default: 1000)", default=1000)
    parser.add_argument(
        "--fps", type=float, metavar="N", default=30.0, help="frames per second (default: 30)"
    )
    _add_seed(parser)


def _add_seed(parser: argparse.ArgumentParser, *, default: int | None = 0) -> None:
    parser.add_argument("--seed", type=_seed, metavar="N", default=default, help="(default: 0)")


def _add_number(
    parser: argparse.ArgumentParser,
    name: str,
    what: str,
    *,
    default: int | None = None,
    metavar: str = "N",
) -> None:
    parser.add_argument(name, type=_whole_number, metavar=metavar, default=default, help=what)


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
