"""What the command line understands. Each command is a function in a module of its own."""

import argparse
import importlib
import math
import os
import signal
import sys
from collections.abc import Sequence

import jaxenvs
from jaxenvs._entry_points import import_module
from jaxenvs.errors import JaxenvsError

_HELP = {
    "": """\
Environments, what they are, how they look, and agents that learn them.

examples:
  jaxenvs list                              every environment
  jaxenvs info CartPole-v1                  spaces, parameters, limits
  jaxenvs train ppo CartPole-v1             learn it, with settings that suit it
  jaxenvs eval runs/ppo/CartPole-v1         what the policy reaches
  jaxenvs enjoy runs/ppo/CartPole-v1        what it does
  jaxenvs render Pendulum-v1 -o swing.gif   look at it
  jaxenvs train --help                      examples of a command""",
    "list": """\
List the environments.

examples:
  jaxenvs list
  jaxenvs list car                          ids that contain "car", in either case
  jaxenvs list --family classic_control""",
    "info": """\
Show an environment: spaces, parameters with defaults and units, limits, source.

examples:
  jaxenvs info CartPole-v1
  jaxenvs info gymnasium/Ant-v5             one that is not JAX
  jaxenvs info grid.py:Grid                 a class of your own""",
    "train": """\
Train an agent in jitted programs, with settings that suit the id.

Leaves in the output folder: config.toml, metrics.csv, metrics.jsonl, checkpoint/, policy/, which
`jaxenvs eval`, `enjoy` and `render --checkpoint` read, and, with the extra `render`,
learning_curve.png. With --evaluate-every, best/ is the policy that was best on environments of its
own. Several seeds have a folder each. Ctrl-C saves what there is.

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
  jaxenvs train --config mine.toml          what one has written there
  jaxenvs train --resume runs/acrobot       goes on where it stopped
  jaxenvs train --resume runs/acrobot --total-steps 1e6    and beyond its end
  jaxenvs train ppo gymnasium/CartPole-v1   in worker processes, stepped by the program
  jaxenvs train ppo grid.py:Grid            an environment of your own
  jaxenvs train ppo Grid-v0 --import grid   one that grid.py registers""",
    "eval": """\
Play fresh episodes with what was learned, greedily, and show what they return.

As many episodes are played in each instance, however long they take, so that short ones do not
count more. Runs of one configuration are shown each and together.

examples:
  jaxenvs eval runs/ppo/CartPole-v1
  jaxenvs eval runs/acrobot --episodes 1000 --seed 1
  jaxenvs eval runs/acrobot --which best    where train had --evaluate-every
  jaxenvs eval runs/ppo/CartPole-v1 runs/dqn/CartPole-v1""",
    "enjoy": """\
Play what was learned, into a gif, mp4 or png, or in a window.

examples:
  jaxenvs enjoy runs/ppo/CartPole-v1        writes episode.gif beside the run
  jaxenvs enjoy runs/ppo/CartPole-v1 -o balance.mp4 --episodes 3
  jaxenvs enjoy runs/acrobot/seed_2 --window""",
    "plot": """\
Draw learning curves: the median of the runs of a configuration, with their quartiles.

examples:
  jaxenvs plot runs/acrobot -o acrobot.png
  jaxenvs plot runs/ppo/CartPole-v1 runs/dqn/CartPole-v1 -o compared.svg
  jaxenvs plot runs/acrobot --metric entropy -o entropy.png""",
    "render": """\
Play one episode and write it as gif, mp4 or png (a strip of eight frames).

examples:
  jaxenvs render CartPole-v1 -o random.gif
  jaxenvs render CartPole-v1 -o trained.mp4 --checkpoint runs/ppo/CartPole-v1
  jaxenvs render Acrobot-v1 -o strip.png --seed 3 --max-steps 100""",
    "tune": """\
Try every way to run N environments that are not JAX, and keep the fastest for backend="auto".

The environments are stepped with random actions.

examples:
  jaxenvs tune gymnasium/CartPole-v1 --num-envs 64
  jaxenvs tune gymnasium/Ant-v5 --num-envs 16 --batch-size 8
  jaxenvs tune ALE/Pong-v5 --num-envs 16 --dry-run""",
    "doctor": """\
Show what is installed and in use: versions, devices, cores, memory, the native part of the host
bridge, extras, environment variables. Exits with 2 where JAX does not start, or where something
that is named is missing.

examples:
  jaxenvs doctor
  jaxenvs doctor native atari               compile the native part, look for an extra's packages
  jaxenvs doctor --json""",
}

_ID = "an id, see `jaxenvs list`; or module:Class or file.py:Class, an environment of your own"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: what follows the program's name; None takes them from `sys.argv`.

    Returns:
        The exit status: 0, 2 where the arguments or the installation do not serve, or 128 and
        the signal's number where one stopped a training.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        # Imported here, so that `--help` does not wait for what a command needs.
        command = importlib.import_module(f"jaxenvs.cli.{options.module}")
        if not sys.flags.safe_path and os.getcwd() not in sys.path:  # as `python -m` has it
            sys.path.insert(0, os.getcwd())
        for name in getattr(options, "imports", ()):
            import_module(name, f"--import {name}")
        return command.run(options) or 0
    except JaxenvsError as error:
        print(f"jaxenvs {options.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, `head` for instance, has seen enough
        sys.stderr.close()
    except KeyboardInterrupt:  # `train` saves first and returns the same
        return 128 + signal.SIGINT
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _described(argparse.ArgumentParser(prog="jaxenvs"), "")
    parser.add_argument("--version", action="version", version=f"jaxenvs {jaxenvs.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    listing = _command(commands, "list", "listing", "the environments")
    listing.add_argument("filter", nargs="?", default="", help="part of an id")
    listing.add_argument("--family", help="only this family")
    _add_import(listing)

    info = _command(commands, "info", "info", "one environment")
    _add_id(info)

    train = _command(commands, "train", "train", "learn an environment")
    train.add_argument(
        "algorithm", metavar="ALGORITHM", nargs="?", help="a2c, dqn, ppo, sac, td3 or vpg"
    )
    train.add_argument("id", metavar="ID", nargs="?", help=_ID)
    _add_import(train)
    train.add_argument("--config", metavar="FILE", help="a configuration in TOML")
    train.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a hyper-parameter, actor.NAME, storage.NAME or scheme.NAME; several if need be",
    )
    for name, what in (
        ("--num-envs", "instances (default: the id's)"),
        ("--unroll-length", "steps between updates (default: the id's)"),
        ("--total-steps", "environment steps (default: the id's)"),
        ("--report-every", "updates in a row of metrics (default: about 200 rows)"),
        ("--save-every", "environment steps between checkpoints (default: one at the end)"),
        ("--evaluate-every", "environment steps between evaluations, the best policy is kept"),
        ("--evaluation-episodes", "of each evaluation (default: 20)"),
        ("--seeds", "train so many in one program, from --seed on"),
    ):
        _add_number(train, name, what)
    _add_seed(train, default=None)
    for name, what in (("--collection", "collects"), ("--gradients", "computes gradients")):
        train.add_argument(
            name, metavar="WHERE", help=f"who {what}: central, remote:N or remote:N:async"
        )
    train.add_argument(
        "--update",
        metavar="HOW",
        help="decentralized: each worker with gradients applies all of them to weights of its own",
    )
    train.add_argument("--output", metavar="DIR", help="(default: a new one, runs/ALGORITHM/ID)")
    train.add_argument(
        "--log",
        metavar="KIND",
        action="append",
        default=["csv", "jsonl"],
        help="tensorboard or wandb, too; may be given several times",
    )
    train.add_argument("--resume", metavar="DIR", help="go on with the run in this folder")
    train.add_argument(
        "--dry-run", action="store_true", help="print the whole configuration and train nothing"
    )

    evaluate = _command(commands, "eval", "evaluate", "what trained policies reach")
    evaluate.add_argument("runs", metavar="RUN", nargs="+", help="what `train` left")
    _add_number(evaluate, "--episodes", "of each run (default: 100)", default=100)
    _add_seed(evaluate)
    _add_number(
        evaluate, "--max-steps", "where to give up (default: the time limit, or 10,000 steps)"
    )

    _add_which(evaluate)

    enjoy = _command(commands, "enjoy", "enjoy", "what a trained policy does")
    enjoy.add_argument("run", metavar="RUN", help="what `train` left")
    enjoy.add_argument(
        *("-o", "--output"), metavar="FILE", help=".gif, .mp4 or .png (default: RUN/episode.gif)"
    )
    enjoy.add_argument("--window", action="store_true", help="show it on the screen instead")
    _add_number(enjoy, "--episodes", "(default: 1)", default=1)
    _add_which(enjoy)
    _add_playing(enjoy)

    plot = _command(commands, "plot", "plot", "learning curves of several runs")
    plot.add_argument("runs", metavar="RUN", nargs="+", help="what `train` left")
    plot.add_argument("-o", "--output", metavar="FILE", required=True, help=".png, .svg or .pdf")
    plot.add_argument(
        "--metric",
        metavar="NAME",
        default="episode_return",
        help="a column of metrics.csv (default: episode_return)",
    )
    plot.add_argument("--title", metavar="TEXT", help="(default: the ids)")

    render = _command(commands, "render", "render", "an episode as gif, mp4 or png")
    _add_id(render)
    render.add_argument("-o", "--output", metavar="FILE", required=True, help=".gif, .mp4 or .png")
    render.add_argument("--checkpoint", metavar="DIR", help="what `train` left (default: random)")
    _add_which(render)
    _add_playing(render)

    tune = _command(commands, "tune", "tune", "the fastest way to run hosted environments")
    _add_id(tune)
    _add_number(tune, "--num-envs", "(default: 16)", default=16)
    _add_number(tune, "--batch-size", "of recv (default: all)", metavar="B")
    tune.add_argument(
        "--seconds", type=float, metavar="S", default=0.5, help="for each way (default: 0.5)"
    )
    tune.add_argument("--dry-run", action="store_true", help="print the table, keep nothing")

    doctor = _command(commands, "doctor", "doctor", "what is installed and in use")
    doctor.add_argument(
        "needed", nargs="*", metavar="NAME", help='"native" or an extra, which must be there'
    )
    doctor.add_argument("--json", action="store_true", help="as JSON")
    return parser


def _command(commands, name: str, module: str, summary: str) -> argparse.ArgumentParser:
    parser = _described(commands.add_parser(name, help=summary), name)
    parser.set_defaults(module=module)
    return parser


def _described(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    """Puts the description above the options and the examples below them, lines kept."""
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
        help="a module or a file.py that registers ids; may be given several times",
    )


def _add_which(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--which",
        choices=["latest", "best"],
        default="latest",
        help="the policy at the end, or the one that evaluations found best (default: latest)",
    )


def _add_playing(parser: argparse.ArgumentParser) -> None:
    _add_number(parser, "--max-steps", "of an episode (default: 1000)", default=1000)
    parser.add_argument(
        "--fps", type=float, metavar="N", default=30.0, help="frames a second (default: 30)"
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
    """A number as one types it: 100000, 100_000 or 1e5."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number.is_integer():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(number)


def _seed(text: str) -> int:
    """A number that a random key can be made of."""
    number = _whole_number(text)
    if not 0 <= number < 2**32:
        raise argparse.ArgumentTypeError(f"{text} is no seed; pass a number from 0 to {2**32 - 1}")
    return number
