"""The compiled part: how it is compiled, where it is found, and what happens without it."""

import ctypes
import math
import re
import sys
import textwrap
from pathlib import Path
from shutil import which

import jax
import numpy as np
import pytest

import jaxenvs
from hatch_build import compile_part
from jaxenvs.bridge.making.tuning import BackendConfig
from jaxenvs.bridge.memory import channel
from jaxenvs.bridge.native import libraries as _native
from jaxenvs.bridge.native.libraries import POOL, XLA, NativePartMissing
from tests.bridge.envs import Counter

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="futexes are Linux's")


@pytest.fixture(autouse=True)
def _nothing_is_remembered(monkeypatch):
    monkeypatch.delenv(_native.DISABLE, raising=False)
    _native.forget()
    yield
    _native.forget()


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A copy of the sources in native/, to be changed, without libraries."""
    folder = tmp_path / "native"
    folder.mkdir()
    for path in _native.SOURCES.glob("*.[ch]*"):
        (folder / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(_native, "SOURCES", folder)
    return folder


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Names a script as the compiler for C."""

    def use(script: str):
        path = tmp_path / "my-cc"
        path.write_text(f"#!/bin/sh\n{textwrap.dedent(script)}\n")
        path.chmod(0o755)
        monkeypatch.setenv("CC", str(path))

    return use


def needs(*programs):
    return pytest.mark.skipif(not all(map(which, programs)), reason=f"needs {programs}")


def edit(path):
    path.write_text(path.read_text() + "\n")


# --- compiling ---


@needs("cc")
def test_compiled_part_replaces_older_library_and_is_found(sources):
    (sources / "libpool-0123.so").write_bytes(b"of older sources")
    path = compile_part(_native, POOL, sources)
    assert list(sources.glob("*pool*.so")) == [path] == [_native.find(POOL)]
    assert _native.pool_library()._name == str(path)


def test_compiler_that_fails_is_quoted_and_leaves_no_file(sources, compiler):
    before = sorted(sources.iterdir())
    compiler("echo 'In file included' >&2; echo 'pool.h:7:1: error: no futex here' >&2; exit 1")
    with pytest.raises(NativePartMissing, match=r"my-cc failed: pool\.h:7:1: error: no futex here"):
        compile_part(_native, POOL, sources)
    assert sorted(sources.iterdir()) == before


@needs("gcc")
def test_compiler_of_several_words_is_run_with_all_of_them(sources, monkeypatch):
    monkeypatch.setenv("CC", "gcc -include no-such-header.h")
    with pytest.raises(NativePartMissing, match=r"gcc failed: .*no-such-header\.h"):
        compile_part(_native, POOL, sources)


def test_compiler_that_is_missing_is_named(sources, monkeypatch):
    monkeypatch.setenv("CC", "no-such-cc")
    with pytest.raises(NativePartMissing, match=r"CC=no-such-cc: .*No such file"):
        compile_part(_native, POOL, sources)


def test_compile_part_disabled_by_a_variable_compiles_nothing(sources, monkeypatch):
    monkeypatch.setenv(_native.DISABLE, "1")
    with pytest.raises(NativePartMissing, match=f"{_native.DISABLE} is set"):
        compile_part(_native, POOL, sources)


# --- finding ---


@pytest.mark.parametrize("part", [POOL, XLA], ids=lambda part: part.name)
@pytest.mark.parametrize("file", ["pool.c", "xla.cc", "pool.h"])
def test_changed_source_makes_a_library_stale(sources, part, file):
    (sources / _native.file_names(part)[0]).write_bytes(b"")
    assert _native.find(part).parent == sources
    edit(sources / file)
    with pytest.raises(NativePartMissing, match=r"from other sources .* install jaxenvs again"):
        _native.find(part)


@pytest.mark.parametrize(("made_for", "is_used"), [((0, 1), True), ((0, 2), True), ((0, 3), False)])
def test_handlers_made_for_a_newer_xla_are_not_found(sources, monkeypatch, made_for, is_used):
    monkeypatch.setattr(_native, "api_version", lambda: made_for)
    (sources / _native.file_names(XLA)[0]).write_bytes(b"")
    monkeypatch.setattr(_native, "api_version", lambda: (0, 2))
    if is_used:
        assert _native.find(XLA).parent == sources
    else:
        with pytest.raises(NativePartMissing, match="or for a newer jaxlib"):
            _native.find(XLA)


def test_missing_library_is_logged_once_with_what_is_lost(sources, caplog):
    assert not _native.is_there(POOL) and not _native.is_there(POOL)
    (record,) = caplog.records
    assert record.levelname == "WARNING" and re.fullmatch(
        r"the host bridge runs without its pool part \(it was not compiled when jaxenvs was"
        r' installed; .*\): backend="process" is not available',
        record.message,
    )


def test_damaged_library_is_missing_and_named(sources):
    path = sources / _native.file_names(POOL)[0]
    path.write_bytes(b"cut off by a full disk")
    with pytest.raises(NativePartMissing, match=f"{re.escape(str(path))} cannot be loaded"):
        _native.pool_library()


class _Awaited(Counter):
    async def reset(self, **kwargs):
        return super().reset(**kwargs)


def test_pool_without_the_native_part_has_another_backend(sources, monkeypatch):
    with pytest.raises(jaxenvs.errors.PoolError, match=r"was not compiled.*Or pass backend="):
        jaxenvs.make_pool(Counter, 2, backend="process", num_workers=1)
    tuned = BackendConfig("process", 2)  # when there was one
    monkeypatch.setattr("jaxenvs.bridge.making.choosing.load_tuned", lambda *_: tuned)
    with jaxenvs.make_pool(Counter, 2) as pool:
        assert pool.backend == "serial" and pool.reset()[0].shape == (2, 3)
    with jaxenvs.make_pool(_Awaited, 2) as pool:
        assert pool.backend == "asyncio" and pool.reset()[0].shape == (2, 3)


@pytest.mark.parametrize(
    ("options", "backend"),
    [({}, "serial"), ({"num_workers": 1}, "thread"), ({"timeout": 9.0}, "thread")],
)
def test_every_interface_works_without_the_native_part(sources, options, backend):
    with jaxenvs.make_pool(Counter, 2, **options) as pool:
        assert pool.backend == backend and pool.reset()[0].shape == (2, 3)
    id, action = "gymnasium/CartPole-v1", np.zeros(2, np.int32)
    env = jaxenvs.make_vec(id, 2, **options)
    state, timestep = env.reset(jax.random.key(0))
    timestep = env.step(state, action, jax.random.key(1))[1]
    assert (env.pools[0].backend, env.path) == (backend, "callback")
    assert timestep.observation.shape == (2, 4)
    env.close()
    envs = jaxenvs.make_gym(id, 2, **options)
    envs.reset(seed=0)
    assert envs.step(action)[0].shape == (2, 4)
    envs.close()
    envs = jaxenvs.make_dm(id, 2, **options)
    assert envs.step(action).observation.shape == (2, 4)
    envs.close()


def test_native_part_disabled_by_a_variable_is_not_logged(monkeypatch, caplog):
    monkeypatch.setenv(_native.DISABLE, "1")
    assert not _native.is_there(POOL) and not caplog.records
    assert _native.reason_missing(_native.xla_library) == f"{_native.DISABLE} is set"


# --- using ---


def _source(*names):
    """Returns C files without comments."""
    text = "".join((_native.SOURCES / name).read_text() for name in names)
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def _structs_in_c(text):
    """Returns (name, type, length) of each field of each struct; the type of pointers is "*"."""
    found = {}
    for match in re.finditer(r"struct (jx_\w+)? ?\{([^}()]*)\} ?((?:jx|at)_\w+)?;", text):
        fields = found[match[1] or match[3]] = []
        for declaration in match[2].replace("* ", " *").split(";")[:-1]:
            kind, names = re.fullmatch(r"\s*(?:const )?(\w+) (.*)", declaration, re.DOTALL).groups()
            for each in names.split(","):
                star, name, sizes = re.fullmatch(r"\s*(\*?)(\w+)(.*)", each).groups()
                length = math.prod(map(int, re.findall(r"\d+", sizes)))
                fields.append((name, star or kind, length))
    return found


def _fields_in_python(struct, names):
    for name, kind, *_ in struct._fields_:
        length = 1
        if issubclass(kind, ctypes.Array):
            kind, length = kind._type_, kind._length_
        if kind is ctypes.c_void_p or issubclass(kind, ctypes._Pointer):
            number = "*"
        elif issubclass(kind, ctypes.Structure):
            number = names[kind]
        else:
            number = f"{'u' * (kind(-1).value > 0)}int{ctypes.sizeof(kind) * 8}_t"
        yield name.removesuffix("_address"), number, length


def test_structs_in_python_have_the_fields_of_those_in_c():
    from jaxenvs.bridge.jit import structs
    from jaxenvs.bridge.pool.ledger import Ledger
    from jaxenvs.envs.atari import machine
    from jaxenvs.physics import c

    pairs = {"jx_line": channel.Line, "jx_header": channel.Header, "jx_pool": channel.PoolStruct}
    pairs |= {"jx_ledger": Ledger, "jx_column": structs._Column, "jx_hosted": structs.Hosted}
    pairs |= {"jx_array": structs._Array, "jx_call": structs._Call}
    pairs |= {"jx_field": c._Field, "jx_physics": c._Physics}
    names = {struct: name for name, struct in pairs.items()}
    found = {name: list(_fields_in_python(struct, names)) for name, struct in pairs.items()}
    assert found == _structs_in_c(_source("pool.h", "columns.h", "xla.cc", "physics.h"))
    of_atari = {"at_cartridge": machine._Cartridge, "at_title": machine._Title}
    names = {struct: name for name, struct in of_atari.items()}
    expected = _structs_in_c(_source("atari/console.h", "atari/game.h"))
    for name, struct in of_atari.items():  # others are of C alone
        assert list(_fields_in_python(struct, names)) == expected[name]


def test_numbers_in_python_are_those_of_enums_in_c():
    from jaxenvs.bridge.jit import hosted, interrupts, structs

    pool, xla = (re.findall(r"enum (?:\w+ )?\{([^}]*)\}", _source(f)) for f in ("pool.h", "xla.cc"))
    found = {}
    for names in [*pool, *xla]:
        for number, each in enumerate(names.split(",")):
            name, _, value = each.partition("=")
            found[name.strip()] = int(value or number)
    names = "STEP RESET STEP_ALL RESET_ALL MESSAGE QUIT OK TIMEOUT INTERRUPTED INFO DONE ATTENTION"
    expected = {f"JX_{name}": getattr(channel, name) for name in names.split()}
    expected |= {"kFailed": structs.FAILED, "kPerformed": structs.DONE}
    expected |= {"kInterrupted": structs.INTERRUPTED, "kReset": hosted.RESET_}
    expected |= {"kStep": hosted.STEP_, "kSend": hosted.SEND, "kRecv": hosted.RECV}
    expected |= {"kResetSome": hosted.RESET_SOME}
    own = {"kNotBegun", "kBegun", "kDone", "kMisfit"}  # of xla.cc alone
    assert {name: value for name, value in found.items() if name not in own} == expected
    for name, value in (("BELLS", 8), ("NO_REQUEST", channel._NO_REQUEST)):
        (defined,) = re.findall(rf"#define JX_{name} (\w+)", _source("pool.h"))
        assert int(defined.rstrip("u"), 0) == value
    (together,) = re.findall(r"kTogether = (\d+);", _source("xla.cc"))
    assert int(together) == interrupts.TOGETHER


def test_jaxlibs_headers_are_those_that_jax_names():
    import jax

    assert _native.include_folder() == Path(jax.ffi.include_dir())
    major, minor = _native.api_version()
    assert major >= 0 and minor >= 1
