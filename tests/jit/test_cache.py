"""Machine code on disk is used if and only if it is what numba would compile now."""

from __future__ import annotations

import ast
import dis
import importlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.extending import intrinsic
from packaging.requirements import Requirement

from faults import fill_disk, full_disk, system_call
from places import ROOT
from superhosts.jit import compilation
from superhosts.jit.cache import _references, cache_folder, distrusted, stamp_of
from superhosts.jit.compilation import MODE, NEVER, CacheWarning, before_compiling

FILES = {
    "__init__": "",
    "constants": "STEP = 2\nLIMITS = (3, 4.0)\n",
    "shape": "from typing import NamedTuple\nclass Shape(NamedTuple):\n    width: int\n    height: int\n",
    "helpers": """
from superhosts.jit.cache import compiled

@compiled
def inner(x):
    '''Add one.'''
    return x + 1
""",
    "kernel": """
import numpy as np
from superhosts.jit.cache import compiled
from toy import constants, helpers
from toy.constants import STEP
from toy.shape import Shape

@compiled
def outer(x):
    '''Call a function of this file that is defined below and one of another file.'''
    return below(helpers.inner(x)) + np.int64(STEP) * 10 + constants.LIMITS[0] * 100

@compiled
def below(x):
    return x + 1000

@compiled
def area(shape):
    return shape.width * 10 + shape.height

@compiled
def chosen(x, extra, step=1):
    return x + step if extra is None else x

@compiled
def make(x):
    return Shape(x, 7).width

@compiled
def squares(count):
    made = np.empty(count)
    for i in range(count):
        made[i] = i * i
    return made

@compiled
def total(count):
    return squares(count).sum()

@compiled
def digest(x):
    return hash("odd" if x & 1 else "even")
""",
    "plain": "WORD = 'nothing compiled here'\n",
}


class Toy:
    """A package of some files, whose compiled functions are called as a new process would call them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "toy"
        self.folder.mkdir()
        for name, text in FILES.items():
            self.path(name).write_text(text)

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.py"

    def edit(self, name: str, old: str, new: str) -> None:
        text = self.path(name).read_text()
        assert old in text
        self.path(name).write_text(text.replace(old, new))

    @property
    def kept(self) -> list[Path]:
        return sorted((self.folder / "__pycache__").iterdir())

    def kernel(self) -> Any:
        for name in [name for name in sys.modules if name.partition(".")[0] == "toy"]:
            del sys.modules[name]
        importlib.invalidate_caches()
        return importlib.import_module("toy.kernel")

    def call(self, name: str, *arguments: Any) -> tuple[Any, bool]:
        """Return what a function answers, and whether it had to be compiled."""
        kernel = self.kernel()
        function = getattr(kernel, name)
        result = function(*[kernel.Shape(*each) if isinstance(each, tuple) else each for each in arguments])
        assert bool(function.stats.cache_misses) != bool(function.stats.cache_hits)
        return result, bool(function.stats.cache_misses)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Toy]:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # bytecode of an earlier edit within a second looks fresh
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")  # keep the machine code next to the source
    monkeypatch.setattr(compilation._work, "warned", set())
    distrusted.clear()
    monkeypatch.syspath_prepend(tmp_path)
    yield Toy(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy"]:
        del sys.modules[name]


def test_second_start_compiles_nothing(toy: Toy) -> None:
    assert toy.call("outer", 5) == (1326, True)
    assert toy.call("outer", 5) == (1326, False)
    toy.edit("helpers", "return x + 1", "return x + 2")
    assert toy.call("outer", 5) == (1327, True)


def test_compiling_is_announced_once_and_only_if_it_happens(toy: Toy) -> None:
    said: list[str] = []
    before_compiling(lambda _: said.append("compiling"))
    toy.call("outer", 5)
    assert said == ["compiling"]
    toy.call("outer", 5.0)
    assert said == ["compiling"]
    before_compiling(lambda _: said.append("again"))
    toy.call("outer", 5)  # from disk
    assert said == ["compiling"]


def test_the_version_of_numba_is_one_that_was_tested() -> None:
    """`superhosts.jit` uses private parts of numba: before the range in pyproject.toml grows, these tests must pass."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (tested,) = [each.specifier for each in map(Requirement, needed) if each.name == "numba"]
    assert numba.__version__ in tested, f"numba {numba.__version__} was not tested with superhosts.jit, only {tested}"


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("", "14.0 False\n"),
        pytest.param("print(k.total(4))", "14.0 False\n14.0\n", marks=pytest.mark.slow),  # compiled, around `squares`
    ],
)
def test_machine_code_from_disk_does_not_load_the_compiler(toy: Toy, then: str, said: str) -> None:
    toy.call("squares", 4)
    script = f"import sys, toy.kernel as k; print(k.squares(4).sum(), 'numba.np.arrayobj' in sys.modules); {then}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NUMBA_CACHE_DIR": ""}
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, env=environment)
    assert run.stdout == said


def test_machine_code_for_arguments_that_are_none_or_omitted_is_kept(toy: Toy) -> None:
    for arguments, result in (((1, None), 2), ((1, 2), 1), ((1, None, 5), 6), ((1, None, 0.5), 1.5)):
        assert toy.call("chosen", *arguments) == (result, True)
        assert toy.call("chosen", *arguments) == (result, False)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        pytest.param(("digest", 1), r"it uses hash\(\)", marks=pytest.mark.slow),  # compiles for seconds
        (("chosen", 1, "text"), "unicode_type does not describe"),
    ],
)
def test_code_that_cannot_be_kept(toy: Toy, monkeypatch: pytest.MonkeyPatch, call: tuple[Any, ...], why: str) -> None:
    with pytest.raises(RuntimeError, match=f"machine code of .* cannot be kept, .*: .*{why}"):
        toy.call(*call)
    monkeypatch.delenv(MODE)
    with pytest.warns(CacheWarning, match=f"{why}.*; please report this") as said:
        assert toy.call(*call) == toy.call(*call)
    assert len(said) == 1
    assert not toy.kept


def test_compiling_can_be_forbidden(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.call("below", 5)
    monkeypatch.setenv(MODE, NEVER)
    assert toy.call("below", 5) == (1005, False)
    with pytest.raises(RuntimeError, match="below has to be compiled, although"):
        toy.call("below", 0.5)


def test_without_a_folder_to_write_to_nothing_is_kept(toy: Toy) -> None:
    with system_call("mkdir", fill_disk):
        with pytest.warns(CacheWarning, match="cannot be kept.*NUMBA_CACHE_DIR") as said:
            assert [toy.call("below", 5), toy.call("below", 0.5)] == [(1005, True), (1000.5, True)]
        assert cache_folder(toy.kernel().below) is None
    assert len(said) == 1
    assert not (toy.folder / "__pycache__").exists()


def refused(toy: Toy, place: Path, reason: str) -> None:
    """Assert that a warning names the place, that nothing from there is used, and that the next start mends it."""
    with pytest.warns(CacheWarning, match=rf"machine code .*{place}.* {reason}.*NUMBA_CACHE_DIR") as said:
        assert toy.call("below", 5) == (1005, True)
    assert len(said) == 1
    assert str(place) in distrusted


def test_files_that_others_can_write_are_not_used(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.call("below", 5)
    [file] = toy.kept
    ways: list[tuple[Callable[[], None], str]] = [
        (lambda: file.chmod(0o664), r"can be written by other users \(chmod go-w\)"),
        (lambda: file.chmod(0o646), r"can be written by other users \(chmod go-w\)"),
    ]
    if os.geteuid() == 0:  # Only root gives files away.
        ways.append((lambda: os.chown(file, 4711, -1), r"belongs to another user \(uid 4711\)"))
    for change, reason in ways:
        monkeypatch.setattr(compilation._work, "warned", set())
        change()
        refused(toy, file, reason)
        assert toy.call("below", 5) == (1005, False)  # The file was replaced.


def test_folders_that_others_can_write(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.call("below", 5)
    for mode in (0o1777, 0o775):
        (toy.folder / "__pycache__").chmod(mode)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"own {mode}"))
        assert [toy.call("below", 5), toy.call("below", 5)] == [(1005, True), (1005, False)]  # in the user's folder
        assert str(toy.folder / "__pycache__") in distrusted
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "chosen"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    toy.call("below", 5)
    [folder] = (tmp_path / "chosen").iterdir()
    folder.chmod(0o1777)
    refused(toy, folder, "can be written by other users")


def test_what_is_kept_is_used_whatever_the_umask_is(toy: Toy) -> None:
    before = os.umask(0)
    try:
        assert toy.call("below", 5) == (1005, True)
    finally:
        os.umask(before)
    assert toy.call("below", 5) == (1005, False)


def test_edits_that_change_no_machine_code_recompile_nothing(toy: Toy) -> None:
    toy.call("outer", 5)
    for file, old, new in (
        ("plain", "nothing", "still nothing"),
        ("kernel", "import numpy", "# A comment of two lines,\n# which moves all functions down.\nimport numpy"),
        ("kernel", "and one of another file", "and another"),
        ("helpers", "Add one.", "Add 1 to `x`."),
        ("kernel", "shape.height", "shape.height * 2"),  # in a function that nobody calls
    ):
        toy.edit(file, old, new)
        assert toy.call("outer", 5) == (1326, False), new


def test_edits_that_change_machine_code_recompile(toy: Toy) -> None:
    toy.call("outer", 5)
    for file, old, new, result in (
        ("kernel", "* 10 +", "* 20 +", 1346),  # a constant of the function's own
        ("kernel", "x + 1000", "x + 2000", 2346),  # a callee in the same file
        ("helpers", "return x + 1", "return x + 2", 2347),  # a callee in another file, as attribute of a module
        ("constants", "STEP = 2", "STEP = 3", 2367),  # an imported constant
        ("constants", "(3,", "(4,", 2467),  # a constant that is an attribute of a module
        ("constants", "STEP = 3", "import numpy as np\nSTEP = np.uint8(3)", 2467),  # same value, other type
    ):
        toy.edit(file, old, new)
        assert toy.call("outer", 5) == (result, True), new
    assert toy.call("outer", 5) == (2467, False)


def test_changed_fields_of_named_tuples_recompile(toy: Toy) -> None:
    assert [toy.call("area", (1, 2)), toy.call("make", 3)] == [(12, True), (3, True)]
    toy.edit("shape", "width: int\n    height: int", "height: int\n    width: int")
    assert [toy.call("area", (1, 2)), toy.call("make", 3)] == [(21, True), (7, True)]
    before = stamp_of(toy.kernel().make)
    toy.edit("shape", "    width: int", "    width: int = 8")  # numba does not compile defaults today, but may later
    assert stamp_of(toy.kernel().make) != before


def test_damaged_files_are_ignored(toy: Toy) -> None:
    toy.call("below", 5)
    (file,) = toy.kept
    data = file.read_bytes()
    harmless = data.index(b"\x7fELF") + 10  # a byte of the object code's header that has no effect: no test may crash
    for damaged in (*(data[:keep] for keep in (0, 10, 40, 1000)), data[:harmless] + b"!" + data[harmless + 1 :]):
        file.write_bytes(damaged)
        assert toy.call("below", 5) == (1005, True)
        assert toy.call("below", 5) == (1005, False)


def test_machine_code_that_names_a_module_that_has_gone_is_ignored(toy: Toy) -> None:
    """After an upgrade in place, files of the version before lie in the same folder under the same names."""
    toy.call("make", 3)
    toy.edit("kernel", "from toy.shape import", "from toy.form import")
    toy.path("shape").rename(toy.path("form"))
    assert toy.call("make", 3) == (3, True)


def test_files_of_another_function_or_types_are_not_taken(toy: Toy) -> None:
    """Processes that race for a name cannot hand each other the wrong machine code."""
    toy.call("below", 5)
    (integer,) = toy.kept
    toy.call("below", 0.5)
    (floating,) = set(toy.kept) - {integer}
    floating.write_bytes(integer.read_bytes())
    kernel = toy.kernel()
    assert kernel.below(0.5) == 1000.5
    assert kernel.below.stats.cache_misses


def test_full_disk_costs_only_time(toy: Toy) -> None:
    with full_disk(), pytest.warns(CacheWarning, match="cannot be kept in .*: File too large") as said:
        assert [toy.call("below", 5), toy.call("below", 0.5)] == [(1005, True), (1000.5, True)]
    assert len(said) == 1
    assert not toy.kept


def test_reference_that_has_no_stamp_is_refused(toy: Toy) -> None:
    toy.edit("constants", "STEP = 2", "STEP = [2]")
    with pytest.raises(TypeError, match=r"may not refer to \[2\]"):
        stamp_of(toy.kernel().outer)


def test_instructions_that_an_intrinsic_makes_are_in_the_stamp() -> None:
    def make(text: str) -> Any:
        names: dict[str, Any] = {"intrinsic": intrinsic, "int64": numba.int64}
        body = f"def add(context, x):\n  def make(c, builder, s, v): return {text}\n  return int64(x), make"
        exec(body, names)
        known = {"add": intrinsic(names["add"])}
        exec("def outer(x): return add(x)", known)
        return numba.njit(known["outer"])

    texts = ["v[0]", "v[0]", "builder.neg(v[0])"]
    stamps = [stamp_of(make(text)) for text in texts]
    assert stamps[0] == stamps[1] != stamps[2]


def test_references_of_bytecode_are_those_that_dis_finds() -> None:
    many = "\n".join(f"    module.a{i}.b({i}.5, c{i})" for i in range(300))  # more names than fit into one byte
    text = f"def function():\n    'Docstring.'\n{many}\n"
    codes = [compile(text, "many", "exec"), compile(Path(ast.__file__).read_text(), "ast", "exec")]
    found = 0
    while codes:
        code = codes.pop()
        codes += [each for each in code.co_consts if isinstance(each, type(code))]
        constants, paths, on_path = [], [], False
        for each in [each for each in dis.get_instructions(code) if each.opname != "EXTENDED_ARG"]:
            continues = on_path and each.opname in ("LOAD_ATTR", "LOAD_METHOD")
            if each.opname == "LOAD_GLOBAL":
                paths.append((each.argval,))
            elif continues:
                paths[-1] = (*paths[-1], each.argval)
            elif each.opcode in dis.hasconst:
                constants.append(code.co_consts[each.arg or 0])
            on_path = continues or each.opname == "LOAD_GLOBAL"
        assert _references(code) == (constants, paths)
        found += len(paths)
    assert found > 800


STAMPS = """
import importlib, pkgutil, superhosts
from superhosts.jit.cache import Dispatcher, stamp_of
stamps = {}
for module in pkgutil.walk_packages(superhosts.__path__, "superhosts."):
    if not module.name.endswith("__main__"):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, Dispatcher):
                stamps[module.name, name] = stamp_of(value).hex()
"""


@pytest.mark.slow
def test_every_process_computes_the_same_stamps() -> None:
    here: dict[str, Any] = {}
    exec(STAMPS, here)
    assert len(here["stamps"]) > 100
    command = [sys.executable, "-c", f"{STAMPS}print(stamps)"]
    there = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert ast.literal_eval(there) == here["stamps"]
