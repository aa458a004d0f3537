"""The content of a compiled function: its code, the functions that it calls, and the constants that all of them use.

Numba compiles constants into the machine code. Machine code on disk is therefore valid only while the content is the
same, wherever its parts are written: in the function's file or in others, as numbers, arrays, enumerations or members
of modules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from hashlib import sha256
from inspect import isfunction
from types import CodeType, ModuleType
from typing import Any

import numpy as np

Function = Callable[..., Any]
#: Packages that are not followed: the stamp of machine code has the versions on which the code depends.
FOREIGN = frozenset({"builtins", "llvmlite", "math", "numba", "numpy", "typing"})
#: Types whose `repr` tells all values apart.
PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})


class Content:
    """The content of `function`: `functions` are itself and all that it calls, in the order in which they are found.

    `stands_for` has functions whose machine code another function writes (jit.in_llvm); these are followed instead.
    """

    def __init__(self, function: Function, stands_for: Mapping[Function, Function]) -> None:
        self.functions = [function]
        parts = list[object]()
        for each in self.functions:  # grows
            followed = stands_for.get(each, each)
            parts.append((each.__qualname__, self._of_code(followed.__code__, followed.__globals__)))
            parts.append(self._of_all(followed.__defaults__ or (), ()))
            cells = (cell.cell_contents for cell in followed.__closure__ or ())
            parts.append(self._of_all(cells, followed.__code__.co_names))
        #: A hash that differs if any part of the content does.
        self.digest = sha256(repr(parts).encode()).hexdigest()

    def _of_code(self, code: CodeType, names: Mapping[str, object]) -> object:
        """Describe the instructions of a function, the constants in it, and the values of the global names."""
        inner = [self._of_code(each, names) for each in code.co_consts if isinstance(each, CodeType)]
        constants = [self._of(each, ()) for each in code.co_consts if type(each) is not CodeType]
        used = [(name, self._of(names[name], code.co_names)) for name in code.co_names if name in names]
        return code.co_code, code.co_exceptiontable, code.co_names, code.co_varnames, inner, constants, used

    def _of_all(self, values: Iterable[object], names: Collection[str]) -> list[object]:
        return [self._of(value, names) for value in values]

    def _of(self, value: object, names: Collection[str]) -> object:
        """Describe a value. Of a module, only the members with one of the `names` that the code mentions count."""
        if type(value) in PLAIN:
            return value
        if isinstance(value, int | float | np.generic):
            return type(value).__qualname__, repr(value)
        if isinstance(value, np.ndarray):
            return value.dtype.str, value.shape, value.tobytes()
        if isinstance(value, tuple | list):
            return self._of_all(value, names)
        if isinstance(value, dict):
            return sorted((repr(key), self._of(item, names)) for key, item in value.items())
        if isinstance(value, set | frozenset):
            return sorted(map(repr, value))
        if _is_foreign(value):
            return getattr(value, "__qualname__", type(value).__qualname__)
        if isinstance(value, ModuleType):
            used = [name for name in names if name in vars(value)]
            return [(name, self._of(vars(value)[name], {*names} - {name})) for name in used]
        if isinstance(value, type):
            members = [(each.name, each.value) for each in value] if issubclass(value, Enum) else ()
            return value.__qualname__, getattr(value, "_fields", members)
        function = getattr(value, "__wrapped__", value)  # of a function with a cache, the function itself
        if isfunction(function):
            if function not in self.functions:
                self.functions.append(function)
            return function.__qualname__
        return type(value).__qualname__  # neither code nor a constant: Numba takes none


def _is_foreign(value: object) -> bool:
    """Return whether a value belongs to a package whose version the stamp of machine code covers."""
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return str(module or type(value).__module__).partition(".")[0] in FOREIGN
