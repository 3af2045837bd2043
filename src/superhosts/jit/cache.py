"""The one way this package compiles a hot loop: numba, without the GIL, cached on disk.

Hot loops are scalar Python functions. Each stays callable as plain Python (`function.py_func`), which is how
tests hold it against the oracle, and the same scalar functions are called from CUDA kernels.

Machine code on disk is used only if it is exactly what numba would compile now (`stamp_of`) and nobody else can have
written it (`distrust`). docs/explanation/decisions.md says why ("Why compiled code has a stamp"). A wheel may bring
such code for each level of processors (`LEVELS`); what is in neither place is compiled, with all that the run will
need besides (`ahead.py`).

numba makes a whole program of every function that a compiled one calls: wrappers with which Python and C call it, and
optimized machine code of all three. The caller uses none of that. It contains the LLVM code of its callees and is
optimized with it, so a callee of a callee is optimized several times. The loops that fill a cube have dozens of
callees: half of their compilation made code that nobody runs. So a compiled function has an inline variant, which
callers link: it ends with the LLVM code that numba writes (`_Caller`). If Python calls the function, too, the function
itself is compiled as usual.

All of this uses private parts of numba, so pyproject.toml names the versions with which it was tested.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import enum
import functools
import hashlib
import inspect
import json
import os
import pickle
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any, TypeVar, cast

import llvmlite.binding as llvm
import numba
import numpy as np
from numba.core import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError
from numba.core.extending import _Intrinsic
from numba.core.registry import CPUDispatcher
from numba.core.runtime import _nrt_python as runtime
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.core.types import Array, Boolean, Number
from numba.core.types.containers import BaseNamedTuple, BaseTuple
from numba.core.types.misc import NoneType, Omitted
from numba.extending import typeof_impl
from numba.np import numpy_support

from superhosts.jit import ahead
from superhosts.jit.ahead import Loop
from superhosts.jit.compilation import compiling, is_tested, warn_not_kept


class _Code(JITCodeLibrary):  # type: ignore[misc]
    """The LLVM code of a function as numba writes it, to be linked into callers. There is no machine code of it."""

    codegen = SimpleNamespace(set_env=lambda _name, _environment: None)  # The caller's machine code has environments.

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0, as for functions that are not defined; numba asks for the wrapper that Python would call."""
        self._ensure_finalized()
        return 0

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def _optimize_functions(self, ll_module: Any) -> None:
        """Only say how large types are. The callers optimize the code once they contain it."""
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        """Leave the code as it is."""


class _CalleeCompiler(Compiler):  # type: ignore[misc]
    def compile_extra(self, func: Any) -> Any:
        self.state.library = _Code(self.state.targetctx.codegen(), func.__qualname__)
        return super().compile_extra(func)


@contextlib.contextmanager
def _linked_only(codegen: Any) -> Iterator[None]:
    """Make no machine code of numba's own functions (np.empty, max) that are compiled meanwhile: callers link them."""
    before, codegen._library_class = codegen._library_class, _Code
    try:
        yield
    finally:
        codegen._library_class = before


class CallerCompiler(Compiler):  # type: ignore[misc]
    """Compiles a function for Python, with the environments of its callees: constants that they read at run time."""

    def compile_extra(self, func: Any) -> Any:
        codegen = self.state.targetctx.codegen()
        self.state.library = JITCodeLibrary(codegen, func.__qualname__)
        self.state.library.enable_object_caching()
        with compiling(func.__qualname__), _linked_only(codegen):
            result = super().compile_extra(func)
        for environment in result._find_referenced_environments():
            result.library.codegen.set_env(environment.env_name, environment)
        return result


class _Caller(CPUDispatcher):  # type: ignore[misc]
    """A compiled function that is its inline variant where compiled functions refer to it."""

    @functools.cached_property
    def inline_variant(self) -> Any:
        """Made when a function that calls this one is compiled: most runs compile nothing."""
        options = {**self.targetoptions, "no_cpython_wrapper": True}
        return CPUDispatcher(self.py_func, targetoptions=options, pipeline_class=_CalleeCompiler)

    @property
    def _numba_type_(self) -> Any:
        return self._type if self.is_compiling else self.inline_variant._type  # or it calls itself

    def compile(self, sig: Any) -> Any:
        """Look for machine code before numba does, which holds this loop for one that calls itself meanwhile."""
        with global_compiler_lock:  # Another thread may have asked for the same.
            if isinstance(self._cache, _Cache) and sig not in self.overloads:
                self._cache.fetch(sig, self.targetctx)
            return super().compile(sig)

    def _compilation_chain_init_hook(self) -> None:
        """Do not look through all installed packages for types of their own: no argument of ours has such a type."""


_typeof_other_array = typeof_impl.dispatch(np.ndarray)


@typeof_impl.register(np.ndarray)  # type: ignore[untyped-decorator]
def _typeof_array(value: Any, purpose: Any) -> Any:
    """Return numba's type of an array. numba asks first whether it is masked, which loads numpy.ma (20 ms)."""
    if type(value) is not np.ndarray or not value.dtype.isnative or value.dtype.kind not in "bfiu":
        return _typeof_other_array(value, purpose)
    dtype, layout = numpy_support.from_dtype(value.dtype), numpy_support.map_layout(value)
    return Array(dtype, value.ndim, layout, readonly=not value.flags.writeable)


Function = TypeVar("Function", bound=Callable[..., Any])

LIBRARIES = {"builtins", "llvmlite", "math", "numba", "numpy"}  # described by name only: the stamp has their versions
DIGEST = 32  # bytes
HASH_SECRET = "_numba_hashsecret"  # a symbol of `hash`, sets and dictionaries, which only numba's compiler defines
KINDS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR
LOAD_GLOBAL = dis.opmap["LOAD_GLOBAL"]  # Bytecode: the last bit of its argument is a flag.
LOAD_ATTRIBUTE = {dis.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD") if name in dis.opmap}
ATTRIBUTE_FLAGS = 1 if sys.version_info >= (3, 12) else 0  # bits
NO_OPERATION = {dis.opmap["CACHE"], dis.EXTENDED_ARG}
CONSTANTS = frozenset(dis.hasconst)
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
OTHERS_WRITE = 0o022  # permissions of the group and of all others
WAY_OUT = "set NUMBA_CACHE_DIR to a folder of your own"

# What came with the package, by level of processors; the best first. A processor has a level if it has these features
# and those of the levels below. An architecture that is not named has one level, GENERIC.
SHIPPED = Path(__file__).parent.parent / "code"
GENERIC = "generic"
LEVELS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
        "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"),
        "x86-64-v2": ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"),
    }
}

distrusted: dict[str, str] = {}  # files and folders of the cache that are not used, and why


def _after_fork() -> None:
    """In a child no thread would release the lock, and its parent may have other children that compile."""
    global_compiler_lock._lock = threading.RLock()
    ahead.use_one_process()


os.register_at_fork(after_in_child=_after_fork)


def compiled(function: Function, *, counts: bool = True) -> Function:
    """Compile `function` with numba when it is first called; keep the result on disk.

    Without `counts`, it does not count references to its arrays: only for functions that make no arrays.
    """
    options = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    if not counts:
        options["_nrt"] = False  # Otherwise a function does what the one does that calls it.
    dispatcher: Any = numba.njit(pipeline_class=CallerCompiler, **options)(function)
    if dispatcher is not function:  # With NUMBA_DISABLE_JIT, numba returns the function itself.
        dispatcher._cache = _Cache(dispatcher)
        dispatcher.__class__ = _Caller
    return cast(Function, dispatcher)


def inlined(function: Function) -> Function:
    """Let numba put `function` into compiled functions that call it, before LLVM sees either."""
    return cast(Function, numba.njit(inline="always", error_model="numpy")(function))


def plain(function: Function) -> Function:
    """Return a compiled function as the Python that it is made of: NumPy computes a short column with it sooner."""
    return cast(Function, getattr(function, "py_func", function))


def jit_disabled() -> bool:
    """Return True if numba compiles nothing (NUMBA_DISABLE_JIT): functions are plain Python then."""
    return bool(numba.config.DISABLE_JIT)


def cache_folder(function: Callable[..., Any]) -> str | None:
    return getattr(getattr(function, "_cache", None), "cache_path", None)


@functools.cache
def shipped_levels() -> tuple[str, ...]:
    """Return the levels of this processor that came with the package, the best first."""
    if numba.config.CPU_NAME or not SHIPPED.is_dir():  # or the user has chosen a processor
        return ()
    levels = LEVELS.get(platform.machine(), {GENERIC: ()})
    has = llvm.get_host_cpu_features()
    lacking = [not all(has.get(each) for each in features) for features in levels.values()]
    return tuple(name for number, name in enumerate(levels) if not any(lacking[number:]) and (SHIPPED / name).is_dir())


@functools.cache
def _define_runtime(target: Any) -> None:
    """Define the functions that machine code calls to allocate arrays.

    These are the C functions that `rtsys.initialize` defines. It compiles some more for the linker, which takes 25 ms;
    numba does that before it compiles anything itself.
    """
    if numba.config.NRT_STATS:
        rtsys.initialize(target)
        return
    for name, address in runtime.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


class _Trusted:
    """A mixin for numba's places of the cache: one is used only if no other user can write there."""

    def ensure_cache_path(self: Any) -> None:
        """Make the folder, whatever the umask is; OSError if it cannot be used, so that numba tries the next place."""
        folder = Path(self.get_cache_path())
        folder.mkdir(0o777 & ~OTHERS_WRITE, parents=True, exist_ok=True)
        super().ensure_cache_path()  # type: ignore[misc]
        if reason := distrust(folder.stat()):
            distrusted[str(folder)] = reason
            if numba.config.CACHE_DIR and folder.is_relative_to(numba.config.CACHE_DIR):  # The user chose this place.
                warn_not_kept(f"is not kept in {folder}: the folder {reason}; {WAY_OUT}", "distrust")
            raise PermissionError(folder)


class _Impl(CompileResultCacheImpl):  # type: ignore[misc]
    """numba's way to turn machine code into something to be pickled, and back."""

    _locator_classes = tuple(
        type(each.__name__, (_Trusted, each), {}) for each in CompileResultCacheImpl._locator_classes
    )

    def reduce(self, result: Any) -> Any:
        """Return the parts of a compiled function that Python calls.

        Without environments that hold nothing: numba keeps one for each of its own functions that it has compiled in,
        and loads the module of each with it: a tenth of a second for `np.empty`. Only constants in them are ever read.
        Without LLVM code, which takes longer to parse than machine code to load: callers link the inline variant.
        numba only asks it for the names that the machine code defines. And without the text of all types within.
        """
        (name, kind, (machine_code, _)), *parts, _, initialization, environments = super().reduce(result)
        names = llvm.parse_assembly(f'@"{result.fndesc.llvm_cpython_wrapper_name}" = global i8 0').as_bitcode()
        library = name, kind, (machine_code, names)
        return (library, *parts, "", initialization, tuple(each for each in environments if each.consts))


class _Cache(FunctionCache):  # type: ignore[misc]
    """Machine code of one function on disk: a file for each list of argument types and each kind of processor.

    A file holds the pickled machine code with its key. Nothing is unpickled before stamp and digest are found right.
    The folder is looked for when the function is first called: numba makes a folder and a file to find out whether it
    may, which takes longer than all else before a call.
    """

    _fetched: Any = None

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._name = repr(dispatcher.py_func)
        self._py_func = dispatcher.py_func
        self._dispatcher = dispatcher

    @functools.cached_property
    def _impl(self) -> _Impl | None:
        """None if numba finds no folder to write to, so that nothing is kept on disk."""
        try:
            return _Impl(self._py_func)
        except RuntimeError:
            return None

    @functools.cached_property
    def _cache_path(self) -> str | None:
        return None if self._impl is None else self._impl.locator.get_cache_path()

    def fetch(self, signature: Any, target: Any) -> None:
        """Look for machine code, for `load_overload`; if there is none, first compile what this run may use."""
        describe = partial(_loop_of, self._dispatcher, signature)
        ahead.note_use(describe)
        found = self.find(signature, target)
        can_keep = found is None and self._cache_path is not None
        if can_keep and (loop := describe()) and ahead.compile_expected(loop, _is_missing, _compile):
            found = self.find(signature, target)
        self._fetched = found

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the machine code for a signature; None if numba has to compile it now.

        numba's own method first loads all that a compilation needs (`target.refresh`), which takes a quarter of a
        second. Machine code needs none of it, and numba does it again before it compiles.
        """
        found, self._fetched = self._fetched, None
        if found is None:
            return None
        _define_runtime(target)
        return CompileResult._rebuild(target, *found)

    def find(self, signature: Any, target: Any) -> Any:
        """Return machine code from disk: what was kept for exactly this processor, or came with the package."""
        for path, key in self._places(signature, target.codegen().magic_tuple()):
            if path.exists() and (payload := load_stamped(path, stamp_of(self._dispatcher))) is not None:
                with contextlib.suppress(Exception):  # unpickling may raise anything
                    saved, found = pickle.loads(payload)
                    if saved == key:
                        return found
        return None

    def _places(self, signature: Any, processor: tuple[str, ...]) -> Iterator[tuple[Path, Any]]:
        """Yield the files that may have the machine code for a signature, and what identifies it there."""
        if (types := _describe_types(signature)) is not None:
            if self._cache_path is not None:
                yield self._place(Path(self._cache_path), (types, processor))
            for level in shipped_levels():
                yield self._place(SHIPPED / level, (types, (processor[0], level, "")))

    def _place(self, folder: Path, key: Any) -> tuple[Path, Any]:
        name = f"{self._py_func.__module__}.{self._py_func.__qualname__}".translate({60: None, 62: None})
        number = digest_of(repr(key).encode()).hex()[:16]
        return folder / f"{name}.{sys.implementation.cache_tag}-{number}.code", key

    def save_overload(self, signature: Any, data: Any) -> None:
        if self._impl is None:
            warn_not_kept(f"cannot be kept, so every start compiles: {WAY_OUT}")
        elif obstacle := _obstacle(signature, data):
            name = f"{self._py_func.__module__}.{self._py_func.__qualname__}"
            text = f"of {name} cannot be kept, so every start compiles it: {obstacle}"
            if is_tested():
                raise RuntimeError(f"machine code {text}")
            warn_not_kept(f"{text}; please report this")
        elif self._impl.check_cachable(data):
            path, key = next(self._places(signature, data.codegen.magic_tuple()))
            try:
                self._impl.locator.ensure_cache_path()
            except OSError as error:
                _warn_unwritable(path.parent, error)
            else:
                save_stamped(path, stamp_of(self._dispatcher), dumps((key, self._impl.reduce(data))))


def distrust(status: os.stat_result) -> str:
    """Return why a file or folder is not used: another user can write to it, or could before; "" if nobody can."""
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to another user (uid {status.st_uid})"
    return "can be written by other users (chmod go-w)" if status.st_mode & OTHERS_WRITE else ""


def _read_trusted(path: Path, size: int = -1) -> bytes:
    """Return the first bytes of a file of the cache; none if it cannot be read, or another user can write there."""
    try:
        with path.open("rb") as file:
            if path.is_relative_to(SHIPPED):  # Whoever can write there can write the modules of the package, too.
                return file.read(size)
            for place, status in ((path.parent, path.parent.stat()), (path, os.fstat(file.fileno()))):
                if reason := distrust(status):
                    distrusted[str(place)] = reason
                    warn_not_kept(f"in {place} is not used: it {reason}; {WAY_OUT}", "distrust")
                    return b""
            return file.read(size)
    except OSError:
        return b""


def load_stamped(path: Path, stamp: bytes) -> bytes | None:
    """Return the content of a file that `save_stamped` wrote; None unless it has this stamp, is whole and trusted."""
    data = _read_trusted(path)
    payload = data[2 * DIGEST :]
    return payload if data[: 2 * DIGEST] == stamp + digest_of(payload) else None


def save_stamped(path: Path, stamp: bytes, payload: bytes) -> None:
    """Write the stamp, a digest of the payload and the payload; warn if there is no room on the disk.

    Processes that compile the same function at once write the same file, each by renaming a whole one into place.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 & ~OTHERS_WRITE), "wb") as file:
            file.write(stamp + digest_of(payload) + payload)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        _warn_unwritable(path.parent, error)


def _warn_unwritable(folder: Path, error: OSError) -> None:
    text = f"cannot be kept in {folder}, so the next start compiles again: {error.strerror or error}; {WAY_OUT}"
    warn_not_kept(text, "unwritable")


def _obstacle(signature: tuple[Any, ...], data: Any) -> str:
    """Return why machine code can be used in this process alone; "" if it can be kept."""
    if HASH_SECRET in data.library.get_llvm_str():
        return "it uses hash(), a set or a dictionary, which only numba's compiler can load"
    unclear = [each for each in signature if _describe_type(each) is None]
    return f"the name of {unclear[0]} does not describe the type completely" if unclear else ""


def _describe_types(signature: tuple[Any, ...]) -> str | None:
    """Return types of arguments as JSON, from which `_types_of` makes them again; None if that is impossible."""
    described = [_describe_type(each) for each in signature]
    return None if None in described else json.dumps(described)


def _describe_type(kind: Any) -> Any:
    if isinstance(kind, BaseTuple):
        named = isinstance(kind, BaseNamedTuple)
        name = [":".join(_class_name(kind.instance_class)), *kind.fields] if named else []
        inner = [_describe_type(each) for each in kind.types]
        return None if None in inner else ["tuple", inner, name]
    if isinstance(kind, Array) and isinstance(kind.dtype, Boolean | Number) and kind.aligned:
        return ["array", str(kind.dtype), kind.ndim, kind.layout, kind.mutable]
    if isinstance(kind, Omitted) and isinstance(kind.value, bool | int | float | str | None):
        return ["omitted", kind.value]
    return str(kind) if isinstance(kind, Boolean | NoneType | Number) else None


def _types_of(described: str) -> tuple[Any, ...]:
    return tuple(map(_type_of, json.loads(described)))


def _type_of(described: Any) -> Any:
    if isinstance(described, str):
        return types.boolean if described == "bool" else getattr(types, described)
    form, value, *more = described
    if form == "omitted":
        return Omitted(value)
    if form == "array":
        dimensions, layout, mutable = more
        return Array(_type_of(value), dimensions, layout, readonly=not mutable)
    (name,) = more
    return BaseTuple.from_types(tuple(map(_type_of, value)), _object_named(name[0]) if name else None)


# Loops by name, for other processes


def _loop_of(dispatcher: Dispatcher, signature: tuple[Any, ...]) -> Loop | None:
    """Return a compiled function by the name that a module of its package has for it; None if none has, or can."""
    described, home = _describe_types(signature), dispatcher.py_func.__module__
    package = home.partition(".")[0]
    known = [each for each in sys.modules.copy().items() if each[0].partition(".")[0] == package]
    for module_name, module in sorted(known, key=lambda item: item[0] != home) if described else ():
        for name, value in vars(module).copy().items():  # Another thread may import meanwhile.
            if value is dispatcher:
                return Loop(f"{module_name}:{name}", described or "")
    return None


def _object_named(name: str) -> Any:
    module, _, path = name.partition(":")
    return functools.reduce(getattr, path.split("."), import_module(module))


def _is_missing(loop: Loop) -> bool:
    """Return True if a loop has to be compiled; False also if it is of a package that is not here."""
    try:
        dispatcher, signature = _object_named(loop.name), _types_of(loop.types)
    except (ImportError, AttributeError):
        return False
    return isinstance(dispatcher, _Caller) and dispatcher._cache.find(signature, dispatcher.targetctx) is None


def _compile(loop: Loop) -> None:
    """Compile a loop; one that cannot be compiled, or has other arguments now, is left to the run."""
    with contextlib.suppress(NumbaError, TypeError):
        _object_named(loop.name).compile(_types_of(loop.types))


def missing_loops() -> list[Loop]:
    """Return the loops of the record that have to be compiled on this machine."""
    return [loop for loop in ahead.record().seconds if _is_missing(loop)]


def compile_all() -> list[Loop]:
    """Compile every loop of the record that has to be compiled on this machine; return those that cannot."""
    with global_compiler_lock:
        ahead.compile_all(missing_loops(), _compile)
        for each in missing_loops():  # as a worker that ended has left them
            _compile(each)
        return missing_loops()


def work() -> None:
    """Compile loops that another process hands out, a list in each line of standard input; answer with a line."""
    answers, sys.stdout = sys.stdout, sys.stderr
    groups: SimpleQueue[list[list[str]]] = SimpleQueue()

    def receive() -> None:
        for line in sys.stdin:
            groups.put(json.loads(line))
        os._exit(0)  # The other process has ended, or needs no more.

    threading.Thread(target=receive, daemon=True).start()
    ahead.use_one_process()
    while True:
        for each in groups.get():
            _compile(Loop(*each))
        print(file=answers, flush=True)


def stamp_of(function: Callable[..., Any]) -> bytes:
    """Return a digest of everything that the machine code of a compiled function is made from.

    These are its bytecode and constants, the globals it reads, and the same of all functions it calls. The globals
    must be defined by then: call this when the compiled function is first called, not when it is decorated, because a
    module may define a function below the one that calls it.
    """
    major, _, _ = np.__version__.partition(".")  # numba compiles what it needs of NumPy itself
    return digest_of(repr((numba.__version__, major, _describe(function, {}))).encode())


def _describe(value: Any, seen: dict[FunctionType, int]) -> Any:
    """Describe a value that numba compiles into machine code, so that unlike values have unlike `repr`s."""
    if isinstance(value, Dispatcher):
        return sorted(value.targetoptions.items()), _describe_function(value.py_func, seen)
    if isinstance(value, _Intrinsic):
        return "intrinsic", _describe_function(value._defn, seen)
    if isinstance(value, enum.Enum):
        return _describe(type(value), seen), value.name
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, tuple):
        return _describe(type(value), seen), [_describe(each, seen) for each in value]
    if isinstance(value, frozenset):
        return "frozenset", sorted(repr(_describe(each, seen)) for each in value)
    if isinstance(value, np.generic | np.ndarray):
        return type(value).__name__, repr(value.dtype), value.shape, value.tobytes()
    if isinstance(value, type):
        return _describe_class(value, seen)
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    if callable(value):
        name = name or type(value).__module__  # methods of numpy.random have no module of their own
    if name and name.partition(".")[0] in LIBRARIES:
        return name, getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or _lasting_repr(value)
    if isinstance(value, FunctionType):
        return _describe_function(value, seen)
    raise TypeError(f"a compiled function may not refer to {value!r}: nobody would notice when it changes")


def _lasting_repr(value: Any) -> Any:
    """Return what describes an object of a library in every process: not its address in memory."""
    has_own = "__repr__" in {name for kind in type(value).__mro__[:-1] for name in vars(kind)}
    return repr(value) if has_own else _class_name(type(value))


def _describe_class(value: Any, seen: dict[FunctionType, int]) -> Any:
    if issubclass(value, enum.Enum):
        return _class_name(value), [(each.name, _describe(each.value, seen)) for each in value]
    if issubclass(value, tuple) and hasattr(value, "_fields"):
        defaults = [(name, _describe(each, seen)) for name, each in value._field_defaults.items()]
        return _class_name(value), value._fields, defaults
    return _class_name(value)


def _describe_function(function: FunctionType, seen: dict[FunctionType, int]) -> Any:
    """Describe a function and all that it calls; one that was described before, by its number."""
    if function in seen:
        return seen[function]
    seen[function] = len(seen)
    inputs = [function.__defaults__, *sorted((function.__kwdefaults__ or {}).items())]
    inputs += [cell.cell_contents for cell in function.__closure__ or ()]
    return (
        (function.__module__, function.__qualname__),
        [_describe(each, seen) for each in inputs],
        _describe_code(function.__code__, function.__globals__, seen),
    )


def _describe_code(code: CodeType, variables: dict[str, Any], seen: dict[FunctionType, int]) -> Any:
    constants, paths = _references(code)
    described = [
        _describe_code(each, variables, seen) if isinstance(each, CodeType) else _describe(each, seen)
        for each in constants
    ]
    flags = code.co_flags & KINDS  # numba clears other flags while a profiler runs
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, flags
    names = code.co_varnames, code.co_names, code.co_cellvars, code.co_freevars
    table = getattr(code, "co_exceptiontable", b"")
    return code.co_code, table, counts, names, described, [_describe_global(each, variables, seen) for each in paths]


def _describe_global(path: tuple[str, ...], variables: dict[str, Any], seen: dict[FunctionType, int]) -> Any:
    name, *attributes = path
    value = variables[name] if name in variables else getattr(builtins, name, f"{name} is not defined")
    for attribute in attributes:
        if not isinstance(value, ModuleType):
            break
        value = getattr(value, attribute, f"{attribute} is not defined")
    return path, _describe(value, seen)


@functools.cache
def _references(code: CodeType) -> tuple[list[Any], list[tuple[str, ...]]]:
    """Return the constants that bytecode uses, without its docstring, and the globals with the attributes it reads.

    `dis.get_instructions` says the same in ten times as long, which every start would wait for.
    """
    constants: list[Any] = []
    paths: list[tuple[str, ...]] = []
    open_path = False
    extended = 0
    for operation, low in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        argument = extended | low
        extended = argument << 8 if operation == dis.EXTENDED_ARG else 0
        if operation == LOAD_GLOBAL:
            paths.append((code.co_names[argument >> 1],))
            open_path = True
        elif open_path and operation in LOAD_ATTRIBUTE:
            paths[-1] = (*paths[-1], code.co_names[argument >> ATTRIBUTE_FLAGS])
        elif operation not in NO_OPERATION:
            open_path = False
            if operation in CONSTANTS:
                constants.append(code.co_consts[argument])
    return constants, paths


def _class_name(value: type) -> tuple[str, str]:
    return value.__module__, value.__qualname__


def digest_of(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST).digest()
