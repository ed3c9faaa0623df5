"""PureJaxRL and rejax: installation of their packages, and their programs with our settings."""

import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parent / ".cache" / "training-peers"
PUREJAXRL = HERE.parent.parent / "shared" / "peers" / "purejaxrl"
WHERE = "github.com/luchris429/purejaxrl, commit 31756b1"
PACKAGES = ("gymnax==0.0.9", "rejax==0.1.3")  # PureJaxRL and rejax need gymnax below 1.0


def install() -> None:
    """Makes this process import the peers' packages before the installed ones."""
    if str(FOLDER) in sys.path:
        return
    if not (FOLDER / "rejax").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--target", str(FOLDER), *PACKAGES], check=True)
    sys.path.insert(0, str(FOLDER))
    for name in [name for name in sys.modules if name.partition(".")[0] == "gymnax"]:
        del sys.modules[name]  # a newer one
    try:
        __import__("seaborn")
    except ImportError:  # gymnax imports it for plots, which are not needed here
        sys.modules["seaborn"] = types.ModuleType("seaborn")


def purejaxrl_ppo(
    folder: Path, settings: dict[str, Any], gymnax: Any = None
) -> Callable[[Any], Any]:
    """Returns PureJaxRL's own PPO on CartPole-v1 as a function of an old-style key.

    Args:
        folder: the folder with its `ppo.py` and `wrappers.py`.
        settings: num_envs, unroll_length, total_steps.
        gymnax: the module that it imports as gymnax; None for the installed one.
    """
    if not (folder / "ppo.py").exists():
        raise SystemExit(f"no ppo.py in {folder}: get it from {WHERE} and pass --purejaxrl FOLDER.")
    # Its wrappers import two libraries that PPO on CartPole does not use.
    for name in ("navix", "brax", "brax.envs", "brax.envs.wrappers", "brax.envs.wrappers.training"):
        sys.modules.setdefault(name, types.ModuleType(name))
    training: Any = sys.modules["brax.envs.wrappers.training"]
    training.EpisodeWrapper = training.AutoResetWrapper = object
    brax: Any = sys.modules["brax"]
    brax.envs = sys.modules["brax.envs"]
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    import ppo  # pyright: ignore[reportMissingImports] PureJaxRL's

    ppo.gymnax = gymnax or __import__("gymnax")
    return ppo.make_train(
        {
            "LR": 2.5e-4,
            "NUM_ENVS": settings["num_envs"],
            "NUM_STEPS": settings["unroll_length"],
            "TOTAL_TIMESTEPS": settings["total_steps"],
            "UPDATE_EPOCHS": 4,
            "NUM_MINIBATCHES": 4,
            "GAMMA": 0.99,
            "GAE_LAMBDA": 0.95,
            "CLIP_EPS": 0.2,
            "ENT_COEF": 0.01,
            "VF_COEF": 0.5,
            "MAX_GRAD_NORM": 0.5,
            "ACTIVATION": "tanh",
            "ENV_NAME": "CartPole-v1",
            "ANNEAL_LR": True,
            "DEBUG": False,
        }
    )


def rejax_train(algorithm: str, id: str, total_steps: int, **settings: Any) -> Callable[[Any], Any]:
    """Returns a rejax training as a function of a key, without evaluations."""
    import rejax  # pyright: ignore[reportMissingImports] of `install`

    training = getattr(rejax, algorithm).create(
        env=id,
        total_timesteps=total_steps,
        eval_freq=total_steps,
        skip_initial_evaluation=True,
        **settings,
    )
    training = training.replace(eval_callback=lambda algorithm, state, key: key)
    return lambda key: training.train(key)
