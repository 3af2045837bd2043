"""What people install: wheels in a fresh environment, without an index, and the Debian package in a root of its own."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from needs import needed
from places import ROOT
from superhosts import __version__
from superhosts.jit.compilation import MODE, NEVER

pytestmark = pytest.mark.slow

PYTHON = f"cp{sys.version_info.major}{sys.version_info.minor}"
WITH_CODE = f"superhosts-{__version__}-{PYTHON}-{PYTHON}-manylinux_2_17_{platform.machine()}.whl"
PURE = f"superhosts-{__version__}-py3-none-any.whl"
NEEDED = ("click", "llvmlite", "markdown-it-py", "mdurl", "numba", "numpy", "pygments", "rich", "zlib-ng", "zstandard")
LEVEL = "x86-64-v2" if platform.machine() == "x86_64" else "generic"  # which all processors of today have
SCAN = ["scan", "office.pcap.gz", "--inner", "private", "--threshold", "1000"]
CAPTURES = ROOT / "tests" / "first_hour" / "captures"


def run(command: Sequence[str | Path], **options: object) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload]
    assert ended.returncode == 0, f"{command}\n{ended.stdout[-4000:]}\n{ended.stderr[-4000:]}"
    return str(ended.stdout)


def pip(*words: str | Path, **environment: str) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", *words]
    return run(command, cwd=ROOT, env=os.environ | {"PIP_NO_INDEX": "1"} | environment)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with both wheels, as `make wheel` makes them, but with the code of one scan for one level."""
    pytest.importorskip("hatchling", reason="the extra dev has it")
    folder, code = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("code")
    made = tmp_path_factory.mktemp("made")
    for_level = {"NUMBA_CPU_NAME": LEVEL, "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(made)}
    run([sys.executable, "-m", "superhosts", *SCAN], cwd=CAPTURES, env=os.environ | for_level)
    (code / LEVEL).mkdir(mode=0o775)
    for path in made.rglob("*.code"):
        (code / LEVEL / path.name).write_bytes(path.read_bytes())
        (code / LEVEL / path.name).chmod(0o666)
    (code / "requires.txt").write_text(f"numba=={importlib.metadata.version('numba')}\n")
    for environment in ({}, {"SUPERHOSTS_CODE": str(code)}):
        pip("wheel", "-q", "--no-build-isolation", "--no-deps", "-w", folder, ".", **environment)
    return folder


def test_one_wheel_has_machine_code_and_wants_its_numba(wheels: Path) -> None:
    assert sorted(each.name for each in wheels.iterdir()) == sorted([WITH_CODE, PURE])
    names, wanted = {}, {}
    for wheel in (WITH_CODE, PURE):
        with zipfile.ZipFile(wheels / wheel) as archive:
            names[wheel] = set(archive.namelist())
            about = archive.read(f"superhosts-{__version__}.dist-info/METADATA").decode()
            wanted[wheel] = set(re.findall(r"^Requires-Dist: (.*)", about, re.MULTILINE))
            modes = {each.external_attr >> 16 & 0o777 for each in archive.infolist() if ".code" in each.filename}
            assert modes <= {0o644}  # code that others can write is not used
    assert f"superhosts-{__version__}.data/data/share/man/man1/superhosts-scan.1" in names[PURE]
    code = names[WITH_CODE] - names[PURE]
    assert len(code) > 5
    assert all(re.fullmatch(rf"superhosts/code/{LEVEL}/superhosts\.[\w.-]+\.code", name) for name in code)
    assert not any("/code/" in name for name in names[PURE])
    assert wanted[WITH_CODE] == wanted[PURE] | {f"numba=={importlib.metadata.version('numba')}"}


def test_pip_takes_the_wheel_with_code_where_it_fits(wheels: Path, tmp_path: Path) -> None:
    machine, minor = platform.machine(), f"{sys.version_info.major}.{sys.version_info.minor}"
    here = f"manylinux_2_28_{machine}", f"manylinux_2_17_{machine}"
    for case, (version, platforms, taken) in enumerate(
        [
            (minor, here, WITH_CODE),
            ("3.99", here, PURE),
            (minor, (f"musllinux_1_2_{machine}",), PURE),
            (minor, ("macosx_14_0_arm64",), PURE),
        ]
    ):
        target = [word for each in platforms for word in ("--platform", each)]
        pip(
            *("download", "-q", "--no-deps", "--only-binary", ":all:", "--find-links", wheels),
            *("--python-version", version, *target, "-d", tmp_path / str(case), "superhosts"),
        )
        assert [each.name for each in (tmp_path / str(case)).iterdir()] == [taken]


def test_a_fresh_environment_runs_the_wheel(wheels: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    run([sys.executable, "-m", "venv", "--without-pip", environment])
    python, program = environment / "bin" / "python", environment / "bin" / "superhosts"
    pip("--python", python, "install", "-q", "--no-deps", "--find-links", wheels, "superhosts")
    packages = next(environment.glob("lib/*/site-packages"))
    assert (packages / "superhosts" / "code").is_dir()
    assert (environment / "share" / "man" / "man1" / "superhosts.1").exists()
    dependencies = {str(Path(importlib.metadata.distribution(each).locate_file(""))) for each in NEEDED}
    (packages / "dependencies.pth").write_text("\n".join(dependencies))
    assert run([program, "--version"], cwd=tmp_path) == f"superhosts {__version__}\n"
    assert run([python, "-c", "import superhosts; print(superhosts.__file__)"], cwd=tmp_path).startswith(str(packages))
    alone = {"HOME": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "none"), MODE: NEVER}
    shown = run([program, *SCAN], cwd=CAPTURES, env=os.environ | alone)
    assert re.search(r"10\.20\.0\.80 +2,600\n.*10\.20\.4\.17 +1,900\n", shown)


KERNELS = """
import importlib.util, sys, warnings
from pathlib import Path
import numpy as np
from hostgpu import host_gpu
from superhosts.detectors.cube.engine import make_on_gpu
from superhosts.detectors.gpu import launch
from superhosts.pipeline.settings import Settings

build, package = sys.argv[1], Path(sys.argv[2])
spec = importlib.util.spec_from_file_location("kernels", build)
kernels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernels)
shipped, compiled = [], []

def compiler(made):
    return lambda function, arguments: made.append(function.__name__) or ("name", b"code")

kernels.to_ptx = compiler(shipped)
kernels.main(package / launch.FOR_GPUS)
launch.SHIPPED, launch.compile_for_gpu = package, compiler(compiled)
warnings.simplefilter("ignore")
settings = Settings()
with host_gpu() as gpu:
    gpu.all_pinned = True
    for part in settings.parts:
        cube = settings.make_detector(part)
        engine = make_on_gpu(cube.engine.plan, 0)
        hosts = np.zeros(9, np.uint32 if part.family == 4 else np.uint64)
        print(engine.is_compiled())
        engine.update_batches([(hosts, hosts)])
        engine.update_batches([(hosts, hosts if part.family == 4 else np.zeros((9, 2), np.uint64))])
        engine.search(cube.search_for(1000))
print(len(shipped) > 5, compiled)
"""


def test_a_default_scan_on_a_gpu_finds_its_kernels_in_the_wheel(tmp_path: Path) -> None:
    """With stand-ins for driver and compiler: which kernels are written, and where they are looked for."""
    places = {"PYTHONPATH": os.pathsep.join(sys.path), "NUMBA_CACHE_DIR": str(tmp_path / "none")}
    command = [sys.executable, "-c", KERNELS, str(ROOT / "deploy" / "kernels.py"), str(tmp_path / "code")]
    assert run(command, env=os.environ | places | {"NUMBA_ENABLE_CUDASIM": "0"}) == "True\nTrue\nTrue []\n"


def make_wheels_again(folder: Path) -> None:
    """Make wheels of the packages of this environment, which superhosts needs."""
    for name in NEEDED:
        package = importlib.metadata.distribution(name)
        tag = re.findall(r"^Tag: (.*)", package.read_text("WHEEL") or "", re.MULTILINE)[0]
        wheel = f"{re.sub('[-.]+', '_', package.name)}-{package.version}-{tag}.whl"
        with zipfile.ZipFile(folder / wheel, "w") as archive:
            for path in package.files or ():
                if ".." not in path.parts and path.suffix != ".pyc" and "tests" not in path.parts:
                    archive.write(path.locate(), path)


IN_ROOT = """
mount -t tmpfs tmpfs "$0" && mkdir "$0/changes" "$0/work" "$0/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$0/changes,workdir=$0/work" "$0/root" || exit 77
mount -t proc proc "$0/root/proc" && mount --rbind /dev "$0/root/dev" && mkdir "$0/root/given" &&
mount --bind "$1" "$0/root/given" && exec chroot "$0/root" /bin/bash -euc "$2"
"""
TRIED = f"""
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
dpkg -i /given/superhosts.deb
id superhosts
superhosts --version
cd /given && superhosts {" ".join(SCAN)}
source /usr/share/bash-completion/completions/superhosts && complete -p superhosts
ls /usr/lib/systemd/system/superhosts-hub.service /usr/share/man/man1/superhosts-scan.1.gz
dpkg --verify superhosts
touch /etc/superhosts/key /opt/superhosts/lib/compiled-here
dpkg --purge superhosts
[ ! -e /opt/superhosts ] && [ ! -e /usr/bin/superhosts ] && ! id superhosts 2>/dev/null && ls /etc/superhosts
"""


@pytest.fixture(scope="module")
def deb(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    needed("dpkg-deb", "SUPERHOSTS_NEED_DEB")
    minor = "import sys; print(*sys.version_info[:2])"
    if not Path("/usr/bin/python3").exists() or run(["/usr/bin/python3", "-c", minor]) != run(
        [sys.executable, "-c", minor]
    ):
        pytest.skip("the Python of the system is another one than that of the tests")
    tree = tmp_path_factory.mktemp("deb")
    for name in ("deploy", "CHANGELOG.md"):
        (tree / name).symlink_to(ROOT / name)
    shutil.copytree(wheels, tree / "dist")
    make_wheels_again(tree / "dist")
    environment = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tree / "dist"), "EXTRAS": ""}
    environment["DPKG_DEB_COMPRESSOR_TYPE"] = "none"
    run(["deploy/deb.sh", sys.executable], cwd=tree, env=os.environ | environment)
    return next((tree / "dist").glob("*.deb")).rename(tree / "superhosts.deb")


def test_the_debian_package_names_what_it_needs_and_the_licences(deb: Path, tmp_path: Path) -> None:
    minor = sys.version_info.minor
    wanted = run(["dpkg-deb", "--field", deb, "Depends"])
    assert wanted.startswith(f"python3 (>= 3.{minor}~), python3 (<< 3.{minor + 1}~), ")
    run(["dpkg-deb", "-x", deb, tmp_path])
    home = tmp_path / "opt" / "superhosts"
    assert run([home / "bin" / "python", "-m", "superhosts", "--version"]) == f"superhosts {__version__}\n"
    assert len(list(home.glob("lib/*/site-packages/superhosts/code/*/*.code"))) > 5
    licences = (tmp_path / "usr/share/doc/superhosts/copyright").read_text("utf-8")
    for name in ("superhosts", *NEEDED):
        assert re.search(rf"^=+\n{name} [\d.]+: .*(Apache|BSD|MIT|PSF)", licences, re.MULTILINE | re.IGNORECASE), name
    assert str(deb.parent) not in licences
    found = subprocess.run(["grep", "-rIl", deb.parent, tmp_path], capture_output=True, text=True, check=False)
    assert found.stdout == "", "the package names the folder in which it was made"
    others = [each for each in tmp_path.rglob("*") if not each.is_symlink() and each.stat().st_mode & 0o022]
    assert others == []


def test_the_debian_package_is_installed_runs_and_is_purged(deb: Path, tmp_path: Path) -> None:
    """The root is that of this machine, with all changes in memory, seen by no other process."""
    if os.geteuid() != 0:
        pytest.skip("only root may change roots")
    shutil.copy(CAPTURES / "office.pcap.gz", deb.parent)
    alone = ["unshare", "--mount", "--pid", "--fork", "/bin/bash", "-c", IN_ROOT, tmp_path, deb.parent, TRIED]
    ended = subprocess.run(alone, capture_output=True, text=True, check=False)
    if ended.returncode == 77:
        pytest.skip(f"no file system over that of this machine: {ended.stderr}")
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    assert f"superhosts {__version__}\n" in ended.stdout
    assert re.search(r"10\.20\.0\.80 +2,600\n.*10\.20\.4\.17 +1,900\n", ended.stdout)
    assert "superhosts: /etc/superhosts is kept" in ended.stdout
    assert ended.stdout.endswith("\nkey\n")
