"""Machine code of loops, kept on disk, which LLVM loads without Numba.

Loading Numba takes 0.4 s, longer than the simulation of most networks; loading LLVM takes 0.05 s. So Numba is imported
only to compile a loop, once per installation. The object file of the loop's optimised LLVM code is kept beside the
source of the loop, or in the user's cache folder.

Numba compiles constants into the machine code. A kept file is therefore valid only while the content of the loop is
unchanged: the code of the loop and of all functions that it calls, and all constants in this code.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache, partial
from hashlib import sha256
from inspect import isfunction
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, cast

import numpy as np

from tilewright.errors import InputError
from tilewright.files import replacing, user_folder

#: See jit.in_llvm.
Emit = Callable[[Any, tuple[int, ...], tuple[Any, ...]], None]
#: For each function marked by jit.in_llvm, the function that writes its LLVM code.
EMITTED: dict[Function, Emit] = {}

#: The version of the file format. Files of other versions are ignored.
FORM = 2
#: The C types of scalars, by kind: address, integer, boolean, float.
C_TYPES = {"p": ctypes.c_void_p, "i": ctypes.c_int64, "b": ctypes.c_uint8, "f": ctypes.c_double}
#: Names that LLVM itself resolves, or replaces by instructions.
INTRINSIC = "llvm."
#: Functions that are always inlined. For other functions, LLVM decides.
INLINED: set[Function] = set()
#: Functions that compiled functions call, and that are registered with Numba.
_REGISTERED: set[Function] = set()


class Loop:
    """A compiled loop. `arguments` are the arguments of the first call; the loop is compiled for their types."""

    def __init__(self, name: str, entry: str, code: bytes, arguments: Sequence[Any]) -> None:
        import llvmlite.binding as llvm

        # Each loop has its own engine, because two loops may use the same names.
        self._engine: Any = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        # Numba's calling convention: the addresses of the result and of an exception, then every argument as scalars;
        # the result is 0 if no exception was raised.
        scalars = [C_TYPES[kind] for kind in _kinds(arguments)]
        type_of: Any = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *scalars)
        self.address: int = self._engine.get_function_address(entry)
        self._call: Any = type_of(self.address)
        self._name = name

    def __call__(self, *arguments: Any) -> int:
        """Call the loop and return its result; 0 if the loop returns None."""
        result = ctypes.c_int64()
        raised = ctypes.c_void_p()
        if self._call(ctypes.byref(result), ctypes.byref(raised), *_scalars(arguments)):
            raise RuntimeError(f"{self._name} raised an exception in compiled code")
        return result.value


def signature(arguments: Sequence[Any]) -> str:
    """Return the types of arguments as text. An argument is an array, a number, or a named tuple of arguments."""
    return " ".join(map(_type, arguments))


def _type(value: Any) -> str:
    if isinstance(value, np.ndarray):
        flags = value.flags
        layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        return f"{value.dtype.str}{value.ndim}{layout}{'' if flags.aligned else 'U'}"
    return f"{type(value).__name__}({signature(value)})" if isinstance(value, tuple) else _number(value)


def _number(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "b"
    if isinstance(value, int | np.integer):
        return "i"
    assert isinstance(value, float), f"a loop cannot take {value!r}"
    return "f"


def _kinds(arguments: Sequence[Any]) -> Iterator[str]:
    for value in arguments:
        if isinstance(value, np.ndarray):
            # Numba passes an array as: owner and parent (unused here), size, item size, address, shape, strides.
            yield from "ppiip" + "ii" * value.ndim
        elif isinstance(value, tuple):
            yield from _kinds(value)
        else:
            yield _number(value)


def _scalars(arguments: Sequence[Any]) -> Iterator[Any]:
    for value in arguments:
        if isinstance(value, np.ndarray):
            yield from (None, None, value.size, value.itemsize, value.__array_interface__["data"][0])
            yield from value.shape
            yield from value.strides
        elif isinstance(value, tuple):
            yield from _scalars(value)
        else:
            yield value


def load(function: Function, arguments: Sequence[Any]) -> Loop:
    """Return `function` compiled for the types of `arguments`.

    If the machine code is not on disk, Numba compiles the loop, and the machine code is kept on disk. Raises a Numba
    error if the loop allocates memory or cannot be compiled.
    """
    assert function.__closure__ is None, "a kept loop does not depend on variables of another function"
    types = signature(arguments)
    name = f"{function.__qualname__}-{sha256(types.encode()).hexdigest()[:12]}.loop"
    paths = [folder / re.sub("[<>]", "_", f"{Path(_source(function)).stem}.{name}") for folder in _folders(function)]
    content = Content(function, {**EMITTED, **_CALLS})
    stamp = _stamp(content, arguments)
    for path in paths:
        if entry_and_code := _read(path, stamp):
            return Loop(function.__qualname__, *entry_and_code, arguments)
    entry, code = _compiled(function, content.functions[1:], arguments)
    for path in paths:
        with suppress(OSError, InputError):  # both the package's folder and the user's folder may be read-only
            _write(path, stamp, entry, code)
            break
    return Loop(function.__qualname__, entry, code, arguments)


def on_disk(function: Function) -> bool:
    """Return whether a file of this loop is on disk. The file may be for other types of arguments, or out of date."""
    start = re.sub("[<>]", "_", f"{Path(_source(function)).stem}.{function.__qualname__}-")
    return any(name.startswith(start) for folder in _folders(function) for name in _listed(folder))


@cache
def _listed(folder: Path) -> tuple[str, ...]:
    return tuple(path.name for path in folder.glob("*.loop"))


def _source(function: Function) -> str:
    return function.__code__.co_filename


def _folders(function: Function) -> tuple[Path, ...]:
    # The first writable folder is used. A loop that was typed into an interpreter has no source file and no folders.
    source = Path(_source(function))
    return (source.parent / "__pycache__", user_folder() / "loops") if source.is_file() else ()


def _stamp(content: Content, arguments: Sequence[Any]) -> str:
    import llvmlite

    # The version of llvmlite determines the version of Numba. Numba's own version is known only after a slow import.
    inlined = [callee.__qualname__ for callee in content.functions if callee in INLINED]
    tools = FORM, llvmlite.__version__, sys.version, _processor()
    return sha256(
        repr((*tools, signature(arguments), [*_fields(arguments)], inlined, content.digest)).encode()
    ).hexdigest()


def _fields(arguments: Iterable[Any]) -> Iterator[tuple[str, ...]]:
    for value in arguments:
        if isinstance(value, tuple):
            yield value._fields  # type: ignore[attr-defined]
            yield from _fields(value)


def _read(path: Path, stamp: str) -> tuple[str, bytes] | None:
    """Return the entry and the code of a kept file; None if the file is missing, damaged or out of date."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        head, _, code = path.read_bytes().partition(b"\n")
        about = json.loads(head)
        if about["stamp"] == stamp and about["code"] == sha256(code).hexdigest():
            return str(about["entry"]), code
    return None


def _write(path: Path, stamp: str, entry: str, code: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {"stamp": stamp, "entry": entry, "code": sha256(code).hexdigest()}
    with replacing(path) as file:
        file.write(json.dumps(head).encode() + b"\n" + code)


def _compiled(function: Function, callees: Sequence[Function], arguments: Sequence[Any]) -> tuple[str, bytes]:
    """Return the name of the loop's function in an object file, and the content of this file."""
    import llvmlite.binding as llvm
    import numba

    # A loop allocates no memory, so it needs no NRT. It is only called by address, so it needs no wrappers.
    options = {"_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    for callee in callees:
        if callee not in _REGISTERED:
            _REGISTERED.add(callee)
            if callee in EMITTED or callee in _CALLS:
                _register(callee)
            else:
                numba.extending.register_jitable(forceinline=callee in INLINED, **options)(callee)
    types = tuple(_numba_type(value) for value in arguments)
    compiler: Any = numba.njit
    dispatcher = compiler(types, nogil=True, **options)(function)
    module = llvm.parse_assembly(dispatcher.inspect_llvm(types))
    module.verify()
    # If the code used a function of Numba's library, LLVM would end the process when it loads the code.
    symbols = (*module.functions, *module.global_variables)
    missing = [symbol.name for symbol in symbols if symbol.is_declaration and not symbol.name.startswith(INTRINSIC)]
    assert not missing, f"{function.__qualname__} uses {', '.join(missing)}, which is not in its own code"
    return dispatcher.overloads[types].fndesc.llvm_func_name, _machine().emit_object(module)


def call_c(address: int, *arguments: int) -> int:
    """Call the C function at an address, in Python or in compiled code. Arguments and result are 64-bit integers."""
    integers = [ctypes.c_int64] * (len(arguments) + 1)
    of: Any = ctypes.CFUNCTYPE(*integers)
    return int(of(address)(*arguments))


def call_loop(address: int, *arguments: Any) -> None:
    """Call the loop at an address (Loop.address), from another loop. An exception in the called loop is lost.

    Raises TypeError in Python.
    """
    raise TypeError("only compiled code calls a loop by its address")


def _register(function: Function) -> None:
    import numba
    from numba.core.typing import templates

    types: Any = numba.types
    result = types.int64 if function is call_c else types.none
    lower = _CALLS.get(function) or partial(_lower, EMITTED[function])

    class Template(templates.AbstractTemplate):
        def generic(self, arguments: Sequence[Any], keywords: object) -> Any:
            return cast(Any, templates).signature(result, *arguments)

    cast(Any, templates).infer_global(function)(Template)
    cast(Any, numba.extending).lower_builtin(function, types.VarArg(types.Any))(lower)


def _lower(emit: Emit, context: Any, builder: Any, signature: Any, arguments: Sequence[Any]) -> Any:
    import numba

    types: Any = numba.types
    bits = []
    operands = []
    for kind, argument in zip(signature.args, arguments, strict=True):
        if isinstance(kind, types.Array):
            bits.append(kind.dtype.bitwidth)
            operands.append(context.make_array(kind)(context, builder, argument).data)
        else:
            bits.append(kind.bitwidth)
            operands.append(context.cast(builder, argument, kind, types.int64))
    emit(builder, tuple(bits), tuple(operands))
    return context.get_dummy_value()


def _lower_call_c(context: Any, builder: Any, signature: Any, arguments: Sequence[Any]) -> Any:
    import numba
    from llvmlite import ir

    word = ir.IntType(64)
    address, *words = (
        context.cast(builder, argument, kind, cast(Any, numba.types).int64)
        for kind, argument in zip(signature.args, arguments, strict=True)
    )
    function = ir.FunctionType(word, [word] * len(words))
    return builder.call(builder.inttoptr(address, function.as_pointer()), words)


def _lower_call_loop(context: Any, builder: Any, signature: Any, arguments: Sequence[Any]) -> Any:
    import numba
    from llvmlite import ir

    types: Any = numba.types
    kinds = [types.int64 if isinstance(kind, types.Integer) else kind for kind in signature.args]
    address, *values = map(partial(context.cast, builder), arguments, signature.args, kinds)
    # Allocate in the entry block. If the call is in a loop, an allocation at the call would repeat in each iteration.
    with builder.goto_entry_block():
        slots = [builder.alloca(ir.IntType(8).as_pointer()) for _ in range(2)]  # for the result and an exception
    scalars = [*slots, *context.get_arg_packer(kinds[1:]).as_arguments(builder, values)]
    function = ir.FunctionType(ir.IntType(32), [scalar.type for scalar in scalars])
    builder.call(builder.inttoptr(address, function.as_pointer()), scalars)
    return context.get_dummy_value()


#: The functions that write the LLVM code of calls by address.
_CALLS: dict[Function, Function] = {call_c: _lower_call_c, call_loop: _lower_call_loop}


def _numba_type(value: Any) -> Any:
    import numba

    of: Any = numba
    if isinstance(value, np.ndarray):
        return of.typeof(value).copy(readonly=False)  # a read-only array would have another type
    if isinstance(value, tuple):
        return of.types.NamedTuple([_numba_type(item) for item in value], type(value))
    return {"b": of.types.boolean, "i": of.types.int64, "f": of.types.float64}[_number(value)]


def _machine() -> Any:
    # The result is not cached, because each engine takes ownership of its target machine.
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = _processor()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=cpu, features=features, opt=3, codemodel="jitdefault", jit=True)


@cache
def _processor() -> tuple[str, str]:
    import llvmlite.binding as llvm

    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def processor_features() -> frozenset[str]:
    """Return LLVM's names of the instruction set extensions of this processor, such as "avx2"."""
    return frozenset(name[1:] for name in _processor()[1].split(",") if name.startswith("+"))


Function = Callable[..., Any]
#: Packages whose content is not hashed, because `_stamp` contains their versions.
FOREIGN = frozenset({"builtins", "llvmlite", "math", "numba", "numpy", "typing"})
#: Types whose `repr` differs for different values.
PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})


class Content:
    """The content of `function`: the code and the constants of this function and of all functions that it calls.

    `functions` lists these functions, beginning with `function`. For functions that jit.in_llvm has marked,
    `substitutes` has the functions that write their machine code; the content of these writers is hashed instead.
    """

    def __init__(self, function: Function, substitutes: Mapping[Function, Function]) -> None:
        self.functions = [function]
        parts = list[object]()
        for member in self.functions:  # the list grows meanwhile, because `_describe` adds the called functions
            source = substitutes.get(member, member)
            parts.append((member.__qualname__, self._describe_code(source.__code__, source.__globals__)))
            parts.append(self._describe_all(source.__defaults__ or (), ()))
            cells = (cell.cell_contents for cell in source.__closure__ or ())
            parts.append(self._describe_all(cells, source.__code__.co_names))
        #: A hash of the whole content.
        self.digest = sha256(repr(parts).encode()).hexdigest()

    def _describe_code(self, code: CodeType, names: Mapping[str, object]) -> object:
        inner = [self._describe_code(constant, names) for constant in code.co_consts if isinstance(constant, CodeType)]
        constants = [self._describe(constant, ()) for constant in code.co_consts if type(constant) is not CodeType]
        used = [(name, self._describe(names[name], code.co_names)) for name in code.co_names if name in names]
        return code.co_code, code.co_exceptiontable, code.co_names, code.co_varnames, inner, constants, used

    def _describe_all(self, values: Iterable[object], names: Collection[str]) -> list[object]:
        return [self._describe(value, names) for value in values]

    def _describe(self, value: object, names: Collection[str]) -> object:
        """Describe a value. Of a module, describe only the members that the code uses: those in `names`."""
        if type(value) in PLAIN:
            return value
        if isinstance(value, int | float | np.generic):
            return type(value).__qualname__, repr(value)
        if isinstance(value, np.ndarray):
            return value.dtype.str, value.shape, value.tobytes()
        if isinstance(value, tuple | list):
            return self._describe_all(value, names)
        if isinstance(value, dict):
            return sorted((repr(key), self._describe(item, names)) for key, item in value.items())
        if isinstance(value, set | frozenset):
            return sorted(map(repr, value))
        if _is_foreign(value):
            return getattr(value, "__qualname__", type(value).__qualname__)
        if isinstance(value, ModuleType):
            used = [name for name in names if name in vars(value)]
            return [(name, self._describe(vars(value)[name], {*names} - {name})) for name in used]
        if isinstance(value, type):
            members = [(member.name, member.value) for member in value] if issubclass(value, Enum) else ()
            return value.__qualname__, getattr(value, "_fields", members)
        function = getattr(value, "__wrapped__", value)  # unwraps a function with a cache
        if isfunction(function):
            if function not in self.functions:
                self.functions.append(function)
            return function.__qualname__
        return type(value).__qualname__  # another object, which Numba cannot compile


def _is_foreign(value: object) -> bool:
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return str(module or type(value).__module__).partition(".")[0] in FOREIGN
