"""Pages of environments in the documentation, which mkdocs makes with this hook, and pictures.

    python docs/environment_pages.py

The content comes from the registry, the classes' docstrings, and the certificates. The command
draws the pictures that are missing, with a pretrained policy if there is one, otherwise with random
actions; pages leave out those that do not exist. Environments whose packages are not installed have
neither.
"""

import inspect
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import jaxenvs
from benchmarks import _certificates, levels
from jaxenvs import pretrained
from jaxenvs.cli.info import describe_parameters
from jaxenvs.cli.render import act_in_one
from jaxenvs.errors import MissingExtraError

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("JAXENVS_MNIST_DIR", str(ROOT / "tests" / "mnist"))  # drawn digits
HOME = "index.md"  # to which the gallery is appended
INDEX = "environments/index.md"  # to which the lists of families and ids are appended
PRETRAINED = "training/pretrained.md"  # to which the table of policies is appended
LEVELS = "usage/levels.md"  # which explains how many levels there are among 10,000 seeds
DOCS = ROOT / "docs"
PICTURES = DOCS / "assets" / "environments"
OVERVIEW = DOCS / "assets" / "overview.gif"
SOURCE = "https://github.com/jaxenvs/jaxenvs/blob/main"
LOG = logging.getLogger("mkdocs.hooks.environment_pages")

WIDTH, HEIGHT = 150, 100  # maximum size of a picture, in pixels
FRAMES, FPS, COLORS = 48, 20, 32
TITLES = {
    "atari": "Atari",
    "babyai": "BabyAI",
    "box2d": "Box2D",
    "bsuite": "bsuite",
    "dm_control": "DeepMind Control Suite",
    "minatar": "MinAtar",
    "minigrid": "MiniGrid",
    "misc": "From gymnax",
    "mujoco": "MuJoCo",
    "robotics": "Gymnasium-Robotics",
}
# The page that describes what all environments of a family share.
_LEVELS = "Observations, actions, and rewards: see [what levels share]", "usage/minigrid.md"
_PHYSICS = "Engines, precision, and other physics: see [MuJoCo tasks]", "usage/mujoco.md"
_ROBOTICS = "Goals, oddities, and engines: see [Mazes and Fetch]", "usage/robotics.md"
_ATARI = "Options, preprocessing, and exactness: see [Atari games]", "usage/atari.md"
_BOX2D = "Precision and speed: see [Box2D tasks]", "usage/box2d.md"
GUIDES = {
    "atari": _ATARI,
    "babyai": _LEVELS,
    "box2d": _BOX2D,
    "dm_control": _PHYSICS,
    "minigrid": _LEVELS,
    "mujoco": _PHYSICS,
    "robotics": _ROBOTICS,
}
ENGINES = {
    "atari": "the console",
    "box2d": "Box2D",
    "dm_control": "MuJoCo",
    "mujoco": "MuJoCo",
    "robotics": "MuJoCo",
}
# Of these families, only some ids have a picture.
PICTURED = {
    "atari": ("Breakout", "MontezumaRevenge", "MsPacman", "Pong", "Seaquest", "SpaceInvaders"),
}
# The environments in the picture of the README, in rows.
TILES = (
    ("CartPole-v1", "Acrobot-v1", "Pendulum-v1", "LunarLander-v3", "BipedalWalker-v3"),
    ("Ant-v5", "HalfCheetah-v5", "Humanoid-v5", "dm_control/quadruped-run", "dm_control/fish-swim"),
    ("MinAtar/Breakout-v1", "MinAtar/Seaquest-v1", "Pong-misc", "FrozenLake-v1", "Taxi-v4"),
    ("MiniGrid-DoorKey-16x16-v0", "MiniGrid-FourRooms-v0", "BabyAI-BossLevel-v0", "MetaMaze-misc")
    + ("bsuite/deep_sea-v0",),
)

GALLERY = {
    *("Ant-v5", "BipedalWalker-v3", "CartPole-v1", "Humanoid-v5", "LunarLander-v3", "Taxi-v4"),
    *("ALE/Breakout-v5", "MinAtar/Seaquest-v1", "MiniGrid-DoorKey-16x16-v0", "Pendulum-v1"),
    *("dm_control/quadruped-run", "BabyAI-BossLevel-v0"),
}

LIMITS = "time limit", "solved at", "compared with"  # columns of tables

Entries = list[tuple[jaxenvs.EnvSpec, jaxenvs.Environment]]  # the ids of a class


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the pages of environments to the navigation; mkdocs calls this."""
    assert config.nav is not None
    (section,) = (part["Environments"] for part in config.nav if "Environments" in part)
    section[1:1] = [
        {title(family): [f"environments/{family}/index.md", *(page_of(family, c) for c in classes)]}
        for family, classes in families().items()
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of environments and their list; mkdocs calls this."""
    for path, text in texts().items():
        written = files.get_file_from_path(path)
        if written is None:
            files.append(File.generated(config, path, content=text))
        else:  # what stands there is an introduction
            written.content_string += text
    return files


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Turns links between notebooks, which lead to files on GitHub, into links between pages."""
    if not page.file.src_uri.endswith(".ipynb"):
        return html
    return re.sub(r'(?<=href=")(\d\d_\w+)\.ipynb(?=")', r"../\1/", html)


def main() -> None:
    """Draws the pictures that are missing."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for spec, env in made():
        path = picture(spec)
        if path and not path.exists():
            known = spec.id in pretrained.index()
            draw(env, path, pretrained.load_policy(spec.id) if known else None)
    if not OVERVIEW.exists():
        draw_overview(OVERVIEW)


def made() -> Iterator[tuple[jaxenvs.EnvSpec, jaxenvs.Environment]]:
    """Yields the registry's entries for environments of jaxenvs, sorted by family and id."""
    own = (
        spec
        for spec in jaxenvs.registry.values()
        if isinstance(spec.entry_point, str) and spec.entry_point.startswith("jaxenvs.envs.")
    )
    missing: dict[str, MissingExtraError] = {}
    for spec in sorted(own, key=lambda spec: (spec.family, numbers_as_numbers(spec.id))):
        try:
            yield spec, jaxenvs.make(spec.id)
        except MissingExtraError as error:
            missing[spec.family] = error
    for family, error in missing.items():
        LOG.info("Some pages of %s are left out: %s", family, error)


@cache  # for `mkdocs serve`, which calls hooks again and again
def families() -> dict[str, dict[type, Entries]]:
    """Returns the entries of each class of each family."""
    found: dict[str, dict[type, Entries]] = {}
    for spec, env in made():
        of_class = found.setdefault(spec.family, {}).setdefault(type(env.unwrapped), [])
        of_class.append((spec, env))
    return found


@cache
def texts() -> dict[str, str]:
    """Returns the text of each page, by its path in the documentation."""
    written = {HOME: gallery(), INDEX: index(), PRETRAINED: policies()}
    for family, classes in families().items():
        written[f"environments/{family}/index.md"] = family_page(family, classes)
        for cls, entries in classes.items():
            written[page_of(family, cls)] = environment_page(cls, entries)
    return written


def title(family: str) -> str:
    return TITLES.get(family) or family.replace("_", " ").capitalize()


def page_of(family: str, cls: type) -> str:
    """Returns the path of the page of a class."""
    return f"environments/{family}/{cls.__name__}.md"


def gallery() -> str:
    """Returns pictures for the first page, each a link to the environment's page."""
    return cards(
        f"[{shown}{spec.id}]({page_of(family, cls)})"
        for family, classes in families().items()
        for cls, entries in classes.items()
        for spec, _ in entries
        if spec.id in GALLERY and (shown := image(spec, "."))
    )


def cards(links: Iterable[str]) -> str:
    """Returns links side by side, as many as fit in a row."""
    return "\n".join(["", '<div class="gallery" markdown>', "", *links, "", "</div>", ""])


def index() -> str:
    """Returns the list of families, and that of all ids, which readers can filter."""
    links = []
    for family, classes in families().items():
        entries = [entry for of_class in classes.values() for entry in of_class]
        shown = next(filter(None, (image(spec, "..") for spec, _ in entries)), "")
        links.append(f"[{shown}{title(family)} ({len(entries)})]({family}/index.md)")
    rows = [
        (
            f"[{spec.id}]({family}/{cls.__name__}.md)",
            title(family),
            kind_of(env.action_space, "continuous"),
            kind_of(env.observation_space, "vector"),
            ENGINES.get(family, "—"),
            *limits(spec),
        )
        for family, classes in families().items()
        for cls, entries in classes.items()
        for spec, env in entries
    ]
    columns = "id", "family", "actions", "observations", "engine", *LIMITS
    lines = [cards(links), "## All ids", "", '<div class="filtered" markdown>']
    return "\n".join([*lines, *table(columns, rows), "", "</div>", ""])


def policies() -> str:
    """Returns the table of pretrained policies."""
    pages = {
        spec.id: page_of(family, cls)
        for family, classes in families().items()
        for cls, entries in classes.items()
        for spec, _ in entries
    }
    rows = []
    for id, entry in pretrained.index().items():
        threshold = jaxenvs.registry[id].reward_threshold
        rows.append(
            (
                f"[{id}](../{pages[id]})" if id in pages else id,
                entry["algorithm"],
                f"{entry['steps']:,}",
                f"{entry['mean']:.4g} ± {entry['std']:.3g}",
                rounded(entry["random"]),
                "—" if threshold is None else f"{threshold:g}",
                f"{entry['episodes']:,}",
                entry["seeds"],
                f"{entry['bytes'] / 1000:.0f} kB",
            )
        )
    columns = "id", "by", "steps", "return", "random actions", "solved at", "episodes", "seeds"
    return "\n".join([*table((*columns, "file"), rows), ""])


def rounded(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


def family_page(family: str, classes: dict[type, Entries]) -> str:
    """Returns the page of a family, with a row per picture."""
    lines = ["---", "hide: [toc]", "---", f"# {title(family)}"]  # wide tables need the room
    if guide := GUIDES.get(family):
        sentence, path = guide
        lines += ["", f"{sentence}(../../{path})."]
    rows, more = [], []
    for cls, entries in classes.items():
        link = f"{cls.__name__}.md"
        summary = read_docstring(cls)[0]
        rows += [
            (image(spec, "../.."), f"[{spec.id}]({link})", summary, *limits(spec))
            for spec, _ in entries
            if picture(spec)
        ]
        others = [f"`{spec.id}`" for spec, _ in entries if not picture(spec)]
        if others:
            more += ["", f"[{len(others)} more]({link}): {', '.join(others)}."]
    return "\n".join([*lines, *table(("", "id", "task", *LIMITS), rows), *more]) + "\n"


def kind_of(space: jaxenvs.spaces.Space, numbers: str) -> str:
    """Returns what a space is, in a word for those who look for an environment.

    `numbers` is the word for a vector.
    """
    if isinstance(space, jaxenvs.spaces.Discrete):
        return "discrete"
    if not isinstance(space, jaxenvs.spaces.Box):
        return "several parts"
    if len(space.shape) < 2:
        return numbers
    return "picture" if space.dtype == np.uint8 else "grid"


def environment_page(cls: type, entries: Entries) -> str:
    """Returns the page of an environment, with all its ids."""
    summary, facts, prose = read_docstring(cls)
    (first, env), *_ = entries
    counts = levels.read()
    lines = [
        f"# {cls.__name__}",
        "",
        summary,
        "",
        "```python",
        "import jaxenvs",
        "",
        f'env = jaxenvs.make("{[spec.id for spec, _ in entries if picture(spec)][-1]}")',
        "```",
        *table(
            ("", "id", "parameters", *LIMITS, f"[levels](../../{LEVELS})"),
            (
                (
                    image(spec, "../.."),
                    f"`{spec.id}`",
                    chosen(spec.kwargs, shown),
                    *limits(spec),
                    f"{counts[spec.id]:,}" if spec.id in counts else "—",
                )
                for spec, _ in entries
            ),
        ),
        "",
    ]
    known = pretrained.index()
    for id in (spec.id for spec, _ in entries if spec.id in known):
        score = known[id]
        lines += [
            f"- [Pretrained](../../{PRETRAINED}) by {score['algorithm']}: `jaxenvs enjoy {id}`,"
            f" mean return {score['mean']:.4g} (random actions: {rounded(score['random'])})"
        ]
    for kind in ("observation", "action"):
        spaces: dict[str, list[str]] = {}
        for spec, made_env in entries:
            spaces.setdefault(repr(getattr(made_env, f"{kind}_space")), []).append(spec.id)
        for space, ids in spaces.items():
            of = f" of {', '.join(ids)}" if len(spaces) > 1 else ""
            lines.append(f"- {kind.capitalize()} space{of}: `{space}`")
    module = f"{SOURCE}/{cls.__module__.replace('.', '/')}.py"
    lines += [f"- Class: [`{cls.__module__}.{cls.__qualname__}`]({module})", "", "## The task"]
    if guide := GUIDES.get(first.family):
        sentence, path = guide
        lines += ["", f"{sentence}(../../{path})."]
    for name, text, rest in facts:
        if name not in ("Source", "Time limit"):  # the limits of the ids are in the table
            lines += ["", f"**{name}**: {text}"]
            if rest:
                lines += ["", *(f"- {line}" for line in rest)]
    sources = [f"**{name}**: {text}" for name, text, _ in facts if name == "Source"]
    for paragraph in (*prose, *sources):
        lines += ["", paragraph]
    lines += [
        "",
        "## Parameters",
        "",
        "A static parameter decides shapes or control flow; changing it compiles a new program.",
    ]
    rows = []
    for name, value, comment, static in describe_parameters(env.unwrapped):
        comment = comment.replace("|", "\\|").replace("[", "\\[")
        value = "auto" if name == "engine" else value  # which the machine decides
        rows.append((f"`{name}`", f"`{shown(value)}`", comment, "static" if static else ""))
    lines += table(("name", "default", "meaning", ""), rows)
    ids = [spec.id for spec, _ in entries]
    return "\n".join([*lines, *certificates(ids), *transfers(ids)]) + "\n"


def certificates(ids: list[str]) -> list[str]:
    """Returns the section about the comparisons with the reference, or why there are none."""
    found = [content for id in ids if (content := _certificates.read(id))]
    if not found:
        reason = _certificates.WITHOUT.get(jaxenvs.registry[ids[0]].family)
        return ["", "## Certificate", "", f"None: {reason}."] if reason else []
    longest = min(content.get("longest", 1_000) for content in found)
    about = (
        f"Compared with {found[0]['reference']} by `python -m benchmarks.certify`: single steps"
        " from the same states with the same actions and random outcomes, also with other"
        " parameters and from states that play does not reach; the distributions of start states"
        " and random outcomes; and whole episodes"
    )
    about += f", some of which were cut off after {longest} steps." if longest < 1_000 else "."
    if found[0].get("engine") == "c":
        about += (
            " Steps run in C MuJoCo. All that it carries from one to the next is equal to the bit,"
            " in single and double precision, so errors are those of numbers that JAX computes, and"
            " of rounding to single precision."
        )
    lines = ["", "## Certificate", "", f"{about} {figures('All figures', ids[0])}."]
    columns = "id", "steps", "episodes", "mismatches", "largest error"
    lines += table(
        (*columns, "lines of the reference run", "smallest p-value"),
        (
            (
                f"`{content['id']}`",
                f"{content['steps']:,}",
                f"{content['episodes']:,}",
                content["mismatches"],
                largest_error(content),
                f"{content['reference_lines_run']} of {content['reference_lines']}",
                f"{content['smallest_p_value']:.2g}",
            )
            for content in found
        ),
    )
    lines += ["", "Mean returns and their standard errors:"]
    return lines + table(
        ("id", "parameters", "policy", "jaxenvs", "reference"),
        (
            (f"`{content['id']}`", chosen(part["parameters"]), policy, *returns(result["return"]))
            for content in found
            for part in content["parts"]
            for policy, result in part["episodes"].items()
        ),
    )


def largest_error(content: dict[str, Any]) -> str:
    """Returns the largest error, that of double precision by itself if there is an engine."""
    if "engine" not in content:
        return f"{content['largest_error']:.0e}"
    single, *double = (part["largest_error"] for part in content["parts"])
    return f"{max(double):.0e}, in single precision {single:.0e}"


def transfers(ids: list[str]) -> list[str]:
    """Returns the part about policies that play in both environments, if there are any."""
    lines = []
    for content in filter(None, (_certificates.read(id, "transfer") for id in ids)):
        lines += [
            "",
            f"Policies for `{content['id']}`, trained by {content['algorithm']} for"
            f" {content['training_steps']:,} steps in one of both, played {content['episodes']:,}"
            " episodes in each (`python -m benchmarks.transfer`). The p-value is that of the"
            f" hypothesis that the mean returns differ by {content['margin']:.0%} or more"
            f" ({figures('all figures', content['id'], 'transfer')}):",
            *table(
                ("policy", "jaxenvs", "reference", "p-value"),
                (
                    (policy, *returns(result), f"{result['p_value']:.2g}")
                    for policy, result in content["policies"].items()
                ),
            ),
        ]
    return lines


def returns(result: dict[str, Any]) -> list[str]:
    """Returns mean and standard error of ours and of the reference."""
    pairs = (result["ours"], result["reference"])
    return [f"{mean:.4g} ± {error:.2g}" for mean, error in pairs]


def figures(text: str, id: str, kind: str = "c") -> str:
    """Returns a link to the file of certificates."""
    path = _certificates.path_of(id, kind).relative_to(ROOT).as_posix()
    return f"[{text}]({SOURCE}/{path})"


def read_docstring(cls: type) -> tuple[str, list[tuple[str, str, list[str]]], list[str]]:
    """Splits a class's docstring into its first line, its `Name: ...` entries, and its paragraphs.

    The indented lines of an entry are joined to its first line, unless they are the parts of an
    observation, which start with a number, or with a name and two spaces, or a sentence.
    """
    summary, _, body = (inspect.getdoc(cls) or "").partition("\n\n")
    facts: list[tuple[str, str, list[str]]] = []
    prose: list[str] = []
    for block in body.split("\n\n"):
        if not re.match(r"(Mission|Observation|Action|Reward|Start|Source)\b.*:", block):
            prose.append(_escape(" ".join(block.split())))
            continue
        for entry in re.split(r"\n(?=\S)", block):
            head, *tail = entry.splitlines()
            if facts and not re.match(r"[A-Z][\w ]*: ", head):  # continues the previous entry
                name, first, rest = facts.pop()
                facts.append((name, f"{first} {_escape(' '.join(entry.split()))}", rest))
                continue
            name, _, first = head.partition(": ")
            parts: list[str] = []
            for line in tail:
                part = re.sub(r"^(\d+(?:-\d+|\+)?(?= )|\w+(?=  ))\s+", r"`\1` ", line.strip())
                if part[0] == "`" or part[0].isupper() or not parts:
                    parts.append(part)
                else:
                    parts[-1] += f" {part}"
            if any(part.startswith("`") for part in parts):
                facts.append((name, _escape(first), [_escape(part) for part in parts]))
            else:
                facts.append((name, _escape(" ".join([first, *parts])), []))
    return " ".join(summary.split()), facts, prose


def sample_action(env: jaxenvs.Environment, key: Any) -> Any:
    """Draws a random action. MuJoCo's actions without limits, written as 1e10, are normal."""
    space = env.action_space
    if isinstance(space, jaxenvs.spaces.Box) and (space.high >= 1e10).all():
        return jax.random.normal(key, space.shape)
    return space.sample(key)


def draw(env: jaxenvs.Environment, path: Path, policy: Any = None) -> None:
    """Writes a small gif of one instance under a policy; None draws actions at random."""
    from PIL import Image

    def step(carry: Any, key: Any) -> Any:
        (state, timestep, memory), first = carry
        action_key, step_key = jax.random.split(key)
        if policy is None:
            action = sample_action(env, action_key)
        else:
            memory, action = act_in_one(policy, memory, timestep, action_key)
        after = *env.step(state, action, step_key), memory
        done = after[1].done
        after = jax.tree.map(lambda new, old: jax.numpy.where(done, new, old), first, after)
        return (after, first), env.render(state)

    @jax.jit
    def play(key: Any) -> Any:
        first = *env.reset(key), None if policy is None else policy.initial_carry(1)
        return jax.lax.scan(step, (first, first), jax.random.split(key, FRAMES))[1]

    frames = np.asarray(play(jax.random.key(1)))
    height, width = frames.shape[1:3]
    scale = min(WIDTH / width, HEIGHT / height)
    size = (max(1, round(scale * width)), max(1, round(scale * height)))
    small = [Image.fromarray(frame).resize(size, Image.Resampling.BOX) for frame in frames]
    write_gif(small, path, COLORS, FPS)


def draw_overview(path: Path) -> None:
    """Writes a picture of many environments from the pictures of single ones."""
    from PIL import Image, ImageSequence

    frames = [
        Image.new("RGB", (WIDTH * len(TILES[0]), HEIGHT * len(TILES)), "white")
        for _ in range(0, FRAMES, 2)
    ]
    for row, ids in enumerate(TILES):
        for column, id in enumerate(ids):
            with Image.open(picture(jaxenvs.registry[id])) as tile:
                tiles = [frame.convert("RGB") for frame in ImageSequence.Iterator(tile)]
            x, y = column * WIDTH + (WIDTH - tile.width) // 2, row * HEIGHT
            for t, frame in enumerate(frames):
                frame.paste(tiles[2 * t % len(tiles)], (x, y + (HEIGHT - tile.height) // 2))
    write_gif(frames, path, 2 * COLORS, FPS // 2)


def write_gif(frames: list[Any], path: Path, colors: int, fps: int) -> None:
    """Writes pictures of PIL with one palette, computed from a few of them."""
    from PIL import Image

    sheet = Image.fromarray(np.concatenate([np.asarray(frame) for frame in frames[::8]]))
    palette = sheet.quantize(colors)
    first, *rest = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    first.save(path, save_all=True, append_images=rest, duration=1000 // fps, loop=0, optimize=True)


def picture(spec: jaxenvs.EnvSpec) -> Path | None:
    """Returns the path of an id's picture, which tasks with other goals or rewards share."""
    names = PICTURED.get(spec.family)
    if names and not any(f"/{name}-v" in spec.id for name in names):
        return None
    name = re.sub(r"(_Diverse_GR?)?(Dense|Debug)?(?=-v\d+$)", "", spec.id.replace("/", "-"))
    name = re.sub(r"_sparse$", "", name)
    name = re.sub(r"(?<=-)(dog|hopper|humanoid|humanoid_CMU|walker)-\w+$", r"\1", name)
    return PICTURES / f"{name}.gif"


def image(spec: jaxenvs.EnvSpec, root: str) -> str:
    """Returns an id's picture, if it is there; `root` leads from the page to the first page."""
    path = picture(spec)
    if path is None or not path.exists():
        return ""
    return f"![{spec.id}]({root}/{path.relative_to(DOCS).as_posix()}){{ loading=lazy }}"


def limits(spec: jaxenvs.EnvSpec) -> list[str]:
    """Returns the cells of the columns `LIMITS`."""
    values = (spec.time_limit, spec.reward_threshold, spec.compared_with)
    return ["—" if value is None else str(value) for value in values]


def chosen(parameters: Mapping[str, Any], show: Callable[[Any], str] = str) -> str:
    assignments = (f"`{name}={show(value)}`" for name, value in parameters.items())
    return ", ".join(assignments) or "the defaults"


def table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> list[str]:
    """Returns the lines of a table, after an empty one."""
    names = list(columns)
    lines = [" | ".join(map(str, row)) for row in (names, *rows)]
    lines.insert(1, " | ".join(["---"] * len(names)))
    return ["", *(f"| {line} |" for line in lines)]


def numbers_as_numbers(id: str) -> list[str | int]:
    """Returns a key that sorts Grid-8x8 before Grid-16x16."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", id)]


def shown(value: Any) -> str:
    """Returns a value as code; for a function or a class, its name."""
    return (getattr(value, "__name__", None) or repr(value)).replace("|", "\\|")


def _escape(text: str) -> str:
    """Escapes characters that Markdown would interpret, as in float32[2] or 3*x."""
    parts: Iterable[str] = re.split(r"(`[^`]*`)", text)  # code spans stay as they are
    return "".join(
        part if part.startswith("`") else re.sub(r"([\[\]*_|])", r"\\\1", part) for part in parts
    )


if __name__ == "__main__":
    main()
