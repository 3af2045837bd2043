"""The memory limits of a process in its control groups, with real files in a folder."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from superhosts.jit.memory import LEAST_REUSED, Reuse, memory_left, memory_of_machine, new_words

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
MIB = 1 << 20


@pytest.fixture(autouse=True)
def no_own_limit() -> None:
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        pytest.skip("this process has a limit of its own (ulimit -v)")


def process(folder: Path, groups: str, mounts: str) -> Path:
    """Write the files of a process in /proc."""
    proc = folder / f"proc{len(list(folder.glob('proc*')))}"
    proc.mkdir()
    (proc / "cgroup").write_text(groups)
    (proc / "mountinfo").write_text(mounts)
    return proc


def limit(folder: Path, name: str, value: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"{value}\n")
    return folder


def mount(place: Path, kind: str = "cgroup2", root: str = "/", options: str = "rw") -> str:
    at = str(place).replace(" ", "\\040")
    return f"25 1 8:1 / / rw - ext4 /dev/sda rw\n31 25 0:27 {root} {at} rw,nosuid shared:9 - {kind} cgroup {options}\n"


def test_without_groups_it_is_the_memory_of_the_machine(tmp_path: Path) -> None:
    assert memory_of_machine(tmp_path / "nothing") == PHYSICAL
    assert memory_of_machine(process(tmp_path, "0::/\n", mount(tmp_path / "none"))) == PHYSICAL


@pytest.mark.parametrize("low", ["user.slice/a.scope", "user.slice", "."])
def test_the_least_limit_between_the_process_and_the_root_counts(tmp_path: Path, low: str) -> None:
    groups = tmp_path / "with a space"
    for name in (".", "user.slice", "user.slice/a.scope"):
        limit(groups / name, "memory.max", 64 * MIB if name == low else "max")
    limit(groups / "system.slice", "memory.max", MIB)  # Limits of other groups do not apply.
    proc = process(tmp_path, "1:name=systemd:/x\n0::/user.slice/a.scope\n", mount(groups))
    assert memory_of_machine(proc) == 64 * MIB


def test_a_limit_beyond_the_machine_is_none(tmp_path: Path) -> None:
    groups = limit(tmp_path / "groups", "memory.max", 2 * PHYSICAL)
    assert memory_of_machine(process(tmp_path, "0::/\n", mount(groups))) == PHYSICAL


def test_a_container_that_sees_its_own_group_only(tmp_path: Path) -> None:
    """Without a cgroup namespace, the mounted root is the container's group, but the path starts at the host's root."""
    groups = limit(tmp_path / "groups", "memory.max", 64 * MIB)
    proc = process(tmp_path, "0::/docker/abc\n", mount(groups, root="/docker/abc"))
    assert memory_of_machine(proc) == 64 * MIB
    limit(groups / "inner", "memory.max", 32 * MIB)
    inner = process(tmp_path, "0::/docker/abc/inner\n", mount(groups, root="/docker/abc"))
    assert memory_of_machine(inner) == 32 * MIB
    elsewhere = process(tmp_path, "0::/elsewhere\n", mount(groups, root="/docker/abc"))
    assert memory_of_machine(elsewhere) == 64 * MIB
    limit(groups, "memory.max", 16 * MIB)  # The limit is lowered while the process runs.
    assert [memory_of_machine(each) for each in (proc, inner, elsewhere)] == [16 * MIB] * 3


def test_groups_of_version_1(tmp_path: Path) -> None:
    groups = limit(tmp_path / "memory", "memory.limit_in_bytes", (1 << 63) - 4096)
    limit(groups / "docker" / "abc", "memory.limit_in_bytes", 64 * MIB)
    limit(tmp_path / "cpu" / "docker" / "abc", "memory.limit_in_bytes", MIB)  # the hierarchy of another controller
    mounts = mount(tmp_path / "cpu", "cgroup", options="rw,cpu") + mount(groups, "cgroup", options="rw,memory")
    proc = process(tmp_path, "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n", mounts)
    assert memory_of_machine(proc) == 64 * MIB


@pytest.mark.parametrize("text", ["", "0", "0:", "::", "\n\n", "0::/../..", "\0"])
def test_odd_files_are_no_error(tmp_path: Path, text: str) -> None:
    proc = process(tmp_path, text, text + "\n31 25\n - cgroup2\n a b c d e - cgroup2\n" + mount(tmp_path / "none"))
    assert memory_of_machine(proc) == PHYSICAL


def test_what_is_left_is_what_the_process_has_not(tmp_path: Path) -> None:
    groups = limit(tmp_path / "groups", "memory.max", 64 * MIB)
    proc = process(tmp_path, "0::/\n", mount(groups))
    assert memory_left(proc) == 64 * MIB  # a system without statm
    page = os.sysconf("SC_PAGE_SIZE")
    (proc / "statm").write_text(f"99999 {16 * MIB // page} 1 1 0 1 0\n")
    assert memory_left(proc) == 48 * MIB
    (proc / "statm").write_text(f"99999 {65 * MIB // page} 1 1 0 1 0\n")
    assert memory_left(proc) == 0


def test_a_limit_of_its_own_counts(tmp_path: Path) -> None:
    most = PHYSICAL - MIB
    code = (
        "import resource; from pathlib import Path; from superhosts.jit.memory import memory_of_machine;"
        f"resource.setrlimit(resource.RLIMIT_AS, ({most}, resource.RLIM_INFINITY));"
        f"print(memory_of_machine(Path({str(tmp_path)!r})))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(ended.stdout) == most


# Memory of large arrays that is used again

WORDS = LEAST_REUSED // 8


def test_arrays_are_used_again_while_somebody_wants_it() -> None:
    reuse = Reuse(2)
    first = new_words((WORDS // 4, 4), cleared=False)
    assert (first.shape, first.dtype, first.flags.aligned, first.flags.writeable) == ((WORDS // 4, 4), "u8", True, True)
    first[:] = 7
    view = first[3:5]
    del first
    second = new_words((WORDS,), cleared=False)
    assert not second.any()  # The view still has the memory of the first one.
    del second, view
    gc.collect()
    third, fourth = new_words((WORDS,), cleared=False), new_words((WORDS,), cleared=False)
    assert sorted([int(third.sum()), int(fourth.sum())]) == [0, 7 * WORDS]
    lender = Reuse.lender(LEAST_REUSED)
    assert lender is not None
    assert lender.made == 2
    del reuse
    gc.collect()
    assert Reuse.lender(LEAST_REUSED) is None
    third[:] = 1  # What was lent stays.
    assert new_words((WORDS,), cleared=False).shape == (WORDS,)


def test_no_more_memory_is_kept_than_was_asked_for() -> None:
    reuse = Reuse(2)
    arrays = [new_words((WORDS,), cleared=False) for _ in range(5)]
    arrays.clear()
    gc.collect()
    assert len(reuse._lenders[LEAST_REUSED]._free) == 2


def test_small_arrays_are_not_lent() -> None:
    reuse = Reuse(2)
    assert new_words((5, 7), cleared=False).shape == (5, 7)
    assert new_words((5, 7), cleared=False).dtype == np.uint64
    assert not reuse._lenders
