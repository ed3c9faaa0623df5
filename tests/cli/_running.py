"""The command line, run in this process."""

from jaxenvs.cli import main

# Tiny networks and few steps: what is learned is nothing, but everything has run.
SMALL = ["--num-envs", "4", "--unroll-length", "32", "--total-steps", "512"]
SMALL += ["--set", "epochs=1", "--set", "minibatches=2", "--set", "actor.hidden_sizes=8"]


def run(capsys, *arguments):
    """Exit status and what was printed, standard output before errors."""
    try:
        status = main([f"{argument}" for argument in arguments])
    except SystemExit as stop:
        status = stop.code
    printed = capsys.readouterr()
    return status, printed.out + printed.err
