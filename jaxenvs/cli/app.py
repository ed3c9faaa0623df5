"""What the command line understands. Each command is a function in a module of its own."""

import argparse
import importlib
import sys
from collections.abc import Sequence

import jaxenvs
from jaxenvs.errors import JaxenvsError

_HELP = {
    "": """\
Environments, what they are, how they look, and agents that learn them.

examples:
  jaxenvs list                              every environment
  jaxenvs info CartPole-v1                  spaces, parameters, limits
  jaxenvs train ppo CartPole-v1             learn it, with settings that suit it
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
  jaxenvs info gymnasium/Ant-v5             one that is not JAX""",
    "train": """\
Train an agent in one jitted program, with settings that suit the id.

Leaves in the output folder: metrics.json, config.json, checkpoint/, which `jaxenvs render
--checkpoint` reads, and, with the extra `render`, learning_curve.png.

examples:
  jaxenvs train ppo CartPole-v1
  jaxenvs train ppo Pendulum-v1 --total-steps 1_000_000 --seed 7
  jaxenvs train ppo Acrobot-v1 --num-envs 64 --output runs/acrobot
  jaxenvs train ppo CartPole-v1 --set learning_rate=3e-4 --set gamma=0.999
  jaxenvs train ppo gymnasium/CartPole-v1   in worker processes, stepped by the program""",
    "render": """\
Play one episode and write it as gif, mp4 or png (a strip of eight frames).

examples:
  jaxenvs render CartPole-v1 -o random.gif
  jaxenvs render CartPole-v1 -o trained.mp4 --checkpoint runs/CartPole-v1
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: what follows the program's name; None takes them from `sys.argv`.

    Returns:
        The exit status: 0, or 2 where the arguments or the installation do not serve.
    """
    options = _parser().parse_args(arguments)
    try:
        # Imported here, so that `--help` does not wait for what a command needs.
        command = importlib.import_module(f"jaxenvs.cli.{options.module}")
        command.run(options)
    except JaxenvsError as error:
        print(f"jaxenvs {options.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, `head` for instance, has seen enough
        sys.stderr.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _described(argparse.ArgumentParser(prog="jaxenvs"), "")
    parser.add_argument("--version", action="version", version=f"jaxenvs {jaxenvs.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    listing = _command(commands, "list", "listing", "the environments")
    listing.add_argument("filter", nargs="?", default="", help="part of an id")
    listing.add_argument("--family", help="only this family")

    info = _command(commands, "info", "info", "one environment")
    _add_id(info)

    train = _command(commands, "train", "train", "learn an environment")
    train.add_argument("algorithm", metavar="ALGORITHM", choices=["ppo"], help="ppo")
    _add_id(train)
    train.add_argument(
        "--total-steps", type=int, metavar="N", help="environment steps (default: the id's)"
    )
    train.add_argument("--num-envs", type=int, metavar="N", help="instances (default: the id's)")
    train.add_argument(
        "--unroll-length", type=int, metavar="N", help="steps between updates (default: the id's)"
    )
    train.add_argument("--seed", type=int, metavar="N", default=0, help="(default: 0)")
    train.add_argument("--output", metavar="DIR", help="(default: runs/ID)")
    train.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a hyper-parameter of PPO; may be given several times",
    )

    render = _command(commands, "render", "render", "an episode as gif, mp4 or png")
    _add_id(render)
    render.add_argument("-o", "--output", metavar="FILE", required=True, help=".gif, .mp4 or .png")
    render.add_argument("--checkpoint", metavar="DIR", help="what `train` left (default: random)")
    render.add_argument("--max-steps", type=int, metavar="N", default=1000, help="(default: 1000)")
    render.add_argument(
        "--fps", type=float, metavar="N", default=30.0, help="frames a second (default: 30)"
    )
    render.add_argument("--seed", type=int, metavar="N", default=0, help="(default: 0)")

    tune = _command(commands, "tune", "tune", "the fastest way to run hosted environments")
    _add_id(tune)
    tune.add_argument("--num-envs", type=int, metavar="N", default=16, help="(default: 16)")
    tune.add_argument("--batch-size", type=int, metavar="B", help="of recv (default: all)")
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
    parser.add_argument("id", metavar="ID", help="an id, see `jaxenvs list`")
