"""`superhosts doctor`: what works on this machine, and what to do about the rest."""

from __future__ import annotations

import ctypes
import json
import platform
import subprocess
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from superhosts import __version__
from superhosts.cli.usage.setup import Doctor
from superhosts.core import device
from superhosts.core.defaults import IPV6_PREFIX
from superhosts.core.text import counted
from superhosts.core.units import format_size
from superhosts.errors import InputError, MissingExtraError, SuperhostsError

if TYPE_CHECKING:
    from superhosts.detectors.cube import Cube


# Every check imports by itself what needs other packages: one that is missing or broken fails its own check alone. It
# returns a state, and a text that says what to do.

OK, MISSING, PROBLEM = "ok", "missing", "problem"  # missing is optional: only a problem changes the exit status
MEMORY = "1MiB"  # of the small cube
COMPUTE_MAJOR, COMPUTE_MINOR = 75, 76  # device attributes of the driver
Answer = tuple[str, str]
AGAIN = "pip install --force-reinstall superhosts"
TABLES = "for Parquet and data frames: pip install 'superhosts[tables]'"


def in_words(error: Exception) -> str:
    """Return the kind and the first line of an error."""
    return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])


def _versions() -> Answer:
    return OK, f"superhosts {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"


def _cpu() -> Answer:
    from superhosts.jit.memory import memory_of_machine

    return OK, f"{counted(device.thread_count(), 'thread')}, {format_size(memory_of_machine())} of memory"


def _imported(state: str, way: str, **modules: str) -> Callable[[], Answer]:
    """Return the check of packages that are imported; `state`: where one is missing."""
    names = {name: module for module, name in modules.items()}
    return partial(_found, state, way, names, lambda name: import_module(names[name]).__version__)


def _extra(name: str, use: str, *packages: str) -> Callable[[], Answer]:
    """Return the check of an extra that needs nothing besides its packages, which are not imported."""
    return partial(_found, MISSING, f"for {use}: pip install 'superhosts[{name}]'", packages, metadata.version)


def _found(state: str, way: str, names: Iterable[str], version: Callable[[str], str]) -> Answer:
    """Return the versions of packages, or which are missing; `version` raises ModuleNotFoundError for one that is."""
    found, missing = [], []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except ModuleNotFoundError:
            missing.append(name)
    if missing:
        return state, "; ".join([*found, f"{', '.join(missing)} not installed; {way}"])
    return OK, ", ".join(found)


def _fleet() -> Answer:
    state, found = _extra("fleet", "a fleet over NATS", "nats-py", "nkeys")()
    if state == MISSING:
        return state, found
    try:
        from superhosts.fleet.nats.broker import find_server
        from superhosts.fleet.nats.connection import LinkDownError, check_version

        server = find_server()
    except MissingExtraError as error:
        return MISSING, f"{error}; edges and hub can exchange files without it (--to, --from)"
    try:
        said = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return PROBLEM, f"{server} does not run: {in_words(error)}"
    try:
        check_version(said.strip().rpartition(" ")[2], str(server))
    except LinkDownError as error:
        return PROBLEM, f"{error}: pip install --upgrade 'superhosts[fleet]'"
    return OK, f"{found}, {said.strip()}"


def _compiled_code() -> Answer:
    from superhosts.detectors.cube.fill import fill

    return describe_code(fill)


def describe_code(function: Callable[..., Any]) -> Answer:
    """Return whether the machine code of a compiled function is kept on disk, and where."""
    import numba

    from superhosts.jit import ahead
    from superhosts.jit.cache import WAY_OUT, cache_folder, distrusted, missing_loops, shipped_levels

    if numba.config.DISABLE_JIT:
        return MISSING, "numba is switched off and all is very slow: unset NUMBA_DISABLE_JIT"
    folder = cache_folder(function)
    levels, loops, lacking = shipped_levels(), len(ahead.record().seconds), len(missing_loops())
    place, not_used = f"folders like {folder}", dict(distrusted)
    if chosen := numba.config.CACHE_DIR:
        if Path(folder or chosen).is_relative_to(chosen):
            place = chosen
        else:  # numba has passed it over
            not_used.setdefault(chosen, "cannot be written")
    unused = "".join(f"; {path} is not used: it {reason}" for path, reason in not_used.items())
    if folder is None and not levels:
        return MISSING, f"cannot be kept, so every start compiles: {WAY_OUT}, which can be written{unused}"
    kept = f"kept in {place}" if folder else "cannot be kept"
    if levels:
        fits = "other versions of Python, numba or NumPy" if lacking else f"{levels[0]} processors"
        kept = f"came with the package, for {fits}; more is {kept}"
    later = f"{lacking:,} of {loops:,} loops are still to be compiled, by runs or by superhosts doctor --compile"
    return OK, f"{kept}; {later if lacking else f'all {loops:,} loops are there'}{unused}"


def _key() -> Answer:
    from superhosts.cli._keys import next_key
    from superhosts.core.keys import find_key

    chosen = find_key()
    if chosen is None:
        return OK, f"none yet; {next_key()}"
    return OK, f"{chosen}, which everybody knows: superhosts key new" if chosen.is_public else str(chosen)


def check_answer(cube: Cube) -> Answer:
    """Return whether a small cube finds its one super host."""
    found = list(cube.super_hosts(256))
    names = [str(item.host) for item in found]
    if names != ["10.0.0.7"] or not found[0].peers_low <= 500 <= (found[0].peers_high or 500):
        return PROBLEM, f"a small cube with one host of 500 peers, 10.0.0.7, gave {found}: please report this"
    return OK, "a small cube finds its one super host"


def small_cube(where: str, memory: str = MEMORY) -> Cube:
    """Return a cube with a host of 500 peers and 300 hosts of one."""
    import numpy as np

    from superhosts.detectors.cube import Cube

    cube = Cube(memory, key="superhosts doctor", device=where, exact=False)
    hosts = np.concatenate([np.full(500, 0x0A000007), 0x0A010000 + np.arange(300)]).astype(np.uint32)
    cube.update(hosts, np.arange(len(hosts), dtype=np.uint32))
    return cube


def _gpu() -> Answer:
    """Ask the driver directly, which needs no other package."""
    driver = device.cuda_driver()
    if driver is None:
        return MISSING, "no NVIDIA driver was found (libcuda.so.1); without one all runs on the CPU"
    status = driver.cuInit(0)
    count = 0 if status else _ask(driver.cuDeviceGetCount)
    if not count:
        return MISSING, f"the NVIDIA driver sees no GPU (status {status}); nvidia-smi should list it"
    version = _ask(driver.cuDriverGetVersion)
    gpus = "; ".join(_describe(driver, gpu) for gpu in range(count))
    return OK, f"{gpus}; driver for CUDA {version // 1000}.{version % 1000 // 10}"


def _describe(driver: Any, number: int) -> str:
    gpu = _ask(driver.cuDeviceGet, number)
    name, memory = ctypes.create_string_buffer(256), ctypes.c_size_t(0)
    driver.cuDeviceGetName(name, len(name), gpu)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), gpu)
    major, minor = (_ask(driver.cuDeviceGetAttribute, which, gpu) for which in (COMPUTE_MAJOR, COMPUTE_MINOR))
    size = format_size(memory.value)
    return f"cuda:{number} {name.value.decode(errors='replace')}, {size}, compute capability {major}.{minor}"


def _ask(call: Any, *arguments: int) -> int:
    answer = ctypes.c_int(0)
    status = call(ctypes.byref(answer), *arguments)
    if status:
        raise OSError(f"the NVIDIA driver fails with status {status}")
    return answer.value


def _gpu_packages() -> Answer:
    found, missing = [], []
    for name, packages in {"numba-cuda": ["numba-cuda"], "CuPy": ["cupy-cuda13x", "cupy-cuda12x", "cupy"]}.items():
        answers = [_found(MISSING, "", [package], metadata.version) for package in packages]
        installed = [text for state, text in answers if state == OK]
        found += installed[:1]
        missing += [] if installed else [name]
    if missing:
        return MISSING, "; ".join([*found, f"{' and '.join(missing)} not installed; with a GPU: {device.INSTALL}"])
    return OK, ", ".join(found)


def gpu_check(memory: str = MEMORY) -> Answer:
    """Return whether cubes of this memory are the same on all GPUs and on the CPU; compile what default cubes need."""
    if device.cuda_problem() is not None:
        return MISSING, "not made: it needs a GPU, its driver and the packages"
    gpus = device.gpus_of(device.choose_device("cuda:all"))
    state, text = compare_gpus(gpus, partial(small_cube, memory=memory))
    return compile_kernels(gpus, text) if state == OK else (state, text)


def compile_kernels(gpus: list[int], text: str) -> Answer:
    """Compile the kernels of default cubes, which depend on the sizes of a cube; add to the text what is wrong.

    Device "auto" uses a GPU only if they are on disk.
    """
    from superhosts.detectors.cube import Cube

    try:
        for gpu in gpus:
            for bits in (32, IPV6_PREFIX):
                Cube(key_bits=bits, device=f"cuda:{gpu}", exact=False).engine.compile()
    except Exception as error:
        return PROBLEM, f"{text}, but the kernels of default cubes cannot be compiled: {in_words(error)}"
    return OK, text


def compare_gpus(gpus: list[int], make: Callable[[str], Cube]) -> Answer:
    """Return whether the small cubes that `make` makes on GPUs are equal to the one on the CPU."""
    try:
        truth = make("cpu")
        other = [gpu for gpu in gpus if not same_content(truth, make(f"cuda:{gpu}"))]
    except Exception as error:
        return PROBLEM, f"a small cube fails there: {in_words(error)}; do packages and driver fit? {device.INSTALL}"
    if other:
        names = ", ".join(f"cuda:{gpu}" for gpu in other)
        return PROBLEM, f"{names} gives other bits than the CPU: do not trust it, use --device cpu and report this"
    return OK, "GPU and CPU give the same bits" + (" (numba's simulator)" if device.simulated() else "")


def same_content(left: Cube, right: Cube) -> bool:
    return left == right and left.super_hosts(256).to_dict() == right.super_hosts(256).to_dict()


def _capturing() -> Answer:
    """Open a packet socket as a live capture does; nothing is captured."""
    from superhosts.sources.kernelfilter import Repeats
    from superhosts.sources.livecapture import INSTALL, interface_names, load_libpcap, open_socket

    try:
        open_socket("live:").close()
    except InputError as error:
        return MISSING, f"live captures (live:eth0): {error.message}"
    pcap = f"--filter needs libpcap: {INSTALL}" if load_libpcap() is None else "libpcap is there for --filter"
    try:
        Repeats(0, 1).close()
        repeats = "repeats of pairs end in the kernel"
    except OSError as error:
        repeats = f"repeats of pairs do not end in the kernel, which CAP_BPF would do: {error.strerror}"
    return OK, f"live:NAME works for {', '.join(interface_names())}; {repeats}; {pcap}"


CHECKS: dict[str, Callable[[], Answer]] = {
    "versions": _versions,
    "CPU": _cpu,
    "packages": _imported(PROBLEM, AGAIN, numpy="NumPy", numba="numba", zstandard="zstandard"),
    "compiled code": _compiled_code,
    "CPU check": lambda: check_answer(small_cube("cpu")),
    "sketch key": _key,
    "GPU": _gpu,
    "GPU packages": _gpu_packages,
    "GPU check": gpu_check,
    "tables": _imported(MISSING, TABLES, pyarrow="pyarrow", polars="Polars", pandas="pandas"),
    "fleet": _fleet,
    "batch": _extra("batch", "the batch command", "dask", "distributed", "fsspec"),
    "dashboard": _extra("web", "--web and superhosts web", "starlette", "uvicorn"),
    "top": _extra("top", "superhosts top", "textual"),
    "figures": _extra("figures", "--figures and --plot", "matplotlib"),
    "metrics": _extra("metrics", "--metrics", "prometheus-client"),
    "kafka": _extra("kafka", "kafka:// inputs and outputs", "confluent-kafka"),
    "apprise": _extra("apprise", "apprise: outputs", "apprise"),
    "geo": _extra("geo", "--geo", "maxminddb"),
    "capturing": _capturing,
}


def doctor(options: Doctor) -> None:
    """Print the result of every check; one that raises an error is a problem, and the next one runs."""
    if options.compile:
        from superhosts.detectors.cube.fill import fill
        from superhosts.jit.cache import cache_folder, compile_all

        if cache_folder(fill) is not None:  # or it would be in vain; the check says so
            compile_all()
    checks = []
    for name, check in CHECKS.items():
        try:
            state, text = check()
        except Exception as error:
            state, text = PROBLEM, in_words(error)
        checks.append({"name": name, "state": state, "text": text})
        if not options.json:
            print(f"{state:8} {name:14} {text}", flush=True)
    if options.json:
        print(json.dumps(checks))
    broken = [check["name"] for check in checks if check["state"] == PROBLEM]
    if broken:
        raise SuperhostsError(f"problems found: {', '.join(broken)}")
