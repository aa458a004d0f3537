"""The content of a launch, and the DRAM of a run.

A launch may come from an untrusted file, so it is checked completely before it runs. `Contents` reads the parts of any
launch, and `LaunchImage` is a launch with instructions and DRAM segments. `Dram` stores constants once for all samples,
and other data separately for each sample.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from tilewright.array import Array, ascending
from tilewright.errors import MachineError, ProgramError
from tilewright.fields import Range, decode, record
from tilewright.program.instruction import Raw
from tilewright.program.program import Launch

KINDS = ("const", "input", "output", "scratch", "inout")
CARRIED = ("const", "inout")  # the launch contains the bytes of the segment
RETURNED = ("output", "inout")  # the host reads the segment after the launch
FILLED = (*CARRIED, "input")  # the segment is initialised before the launch
MAX_ADDRESS = 1 << 32
#: The largest total size of the segments of a launch, in bytes (1 GiB).
MAX_BYTES = 1 << 30

#: The required extents of an array (None: any extent).
Shape = tuple[int | None, ...]


class Contents:
    """Reads the numbers and arrays of a launch. Its methods raise ProgramError for missing or malformed parts."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self.where = f"launch '{launch.name}'"

    def refuse(self, reason: str) -> NoReturn:
        """Raises ProgramError with the name of the launch and the reason."""
        raise ProgramError(self.where, reason, "compile it again")

    def array(self, name: str, dtype: npt.DTypeLike, *shapes: Shape) -> Array:
        """Return the array `name`, which must have the type `dtype` and one of `shapes`."""
        array = self._launch.arrays.get(name)
        if array is None or array.dtype != dtype or not any(_has_shape(array, shape) for shape in shapes):
            expected = " or ".join(f"[{', '.join('n' if size is None else str(size) for size in s)}]" for s in shapes)
            self.refuse(f"lacks the array '{name}', {np.dtype(dtype).name} {expected}")
        return array

    def value(self, hint: Any, name: str) -> Any:
        """Return the value `name` of the launch's `meta` as the type `hint` (see fields.decode)."""
        return decode(hint, self._launch.meta.get(name), f"{self.where}: {name}")

    def number(self, name: str, low: int = 0, high: int = MAX_ADDRESS) -> int:
        """Return the integer `name` of the launch's `meta`, which must be in `low`..`high`."""
        return int(self.value(Annotated[int, Range(low, high)], name))


def _has_shape(array: Array, shape: Shape) -> bool:
    return len(array.shape) == len(shape) and all(
        size in (None, extent) for size, extent in zip(shape, array.shape, strict=True)
    )


@dataclass(frozen=True)
class DramSegment:
    """A part of DRAM that a launch uses. All samples share `const` segments; each has its own copy of other segments.

    `size` is in bytes. A `scratch` segment is not returned to the host. An `inout` segment contains bytes of the launch
    at the start, and is returned.
    """

    name: str
    address: int
    size: int
    kind: str


_ADDRESS = Annotated[int, Range(0, MAX_ADDRESS)]
_SEGMENT: dict[str, Any] = {"name": str, "address": _ADDRESS, "size": Annotated[int, Range(1, MAX_ADDRESS)]}
_SEGMENT["kind"] = Literal[KINDS]


def _name_of(row: Any, index: int) -> str:
    """Return the name of a segment for messages, or its number if the name is malformed."""
    name = row.get("name") if isinstance(row, dict) else None
    return f"'{name}'" if isinstance(name, str) else str(index)


def in_a_row(*parts: tuple[str, str, int], base: int = 0, align: int = 1) -> tuple[DramSegment, ...]:
    """Return consecutive, aligned segments from address `base` on. `parts` are (name, kind, size)."""
    segments = []
    for name, kind, size in parts:
        segments.append(DramSegment(name, base, size, kind))
        base += -(-size // align) * align
    return tuple(segments)


@dataclass(frozen=True, eq=False)
class LaunchImage:
    """The instructions and DRAM segments of a launch.

    `insns` is uint8 [n, nbytes]. `data` has the bytes, uint8 [size], of each const or inout segment. `bases` has the
    address in each base register. `layer`, int64 [n], has the number of each instruction's layer (None: one layer).
    """

    insns: Raw
    segments: tuple[DramSegment, ...]
    data: Mapping[str, Array]
    bases: Mapping[str, int] = field(default_factory=dict)
    layer: Array | None = None

    @classmethod
    def of(cls, launch: Launch, nbytes: int, bases: Sequence[str] = ()) -> LaunchImage:
        """Read a launch with instructions of `nbytes` bytes. `bases` lists the names of the base registers.

        Raises ProgramError if a part of the launch is missing or malformed.
        """
        contents = Contents(launch)
        insns = contents.array("insns", np.uint8, (None, nbytes))
        if not len(insns):
            contents.refuse(f"has no instructions of {nbytes} bytes")
        segments = tuple(
            DramSegment(**record(_SEGMENT, row, f"{contents.where}: segment {_name_of(row, index)}"))
            for index, row in enumerate(contents.value(list, "segments"))
        )
        # A scratch segment has no bytes in the file, so a small file can declare any size.
        if sum(segment.size for segment in segments) > MAX_BYTES:
            contents.refuse(f"has more than {MAX_BYTES >> 20} MiB of segments")
        data = {}
        for segment in segments:
            if segment.kind in CARRIED:
                content = launch.arrays.get(f"dram.{segment.name}")
                if content is None or content.dtype != np.uint8 or content.size != segment.size:
                    contents.refuse(f"segment '{segment.name}' lacks its {segment.size} bytes")
                data[segment.name] = content.reshape(-1)
        stored_bases = launch.meta.get("bases")
        addresses = record(dict.fromkeys(bases, _ADDRESS), stored_bases, f"{contents.where}: bases") if bases else {}
        layer = contents.array("layer", np.int64, (len(insns),)) if "layer" in launch.arrays else None
        layers = len(launch.nodes)
        if layer is not None and (layer.min() < 0 or layer.max() >= layers):
            contents.refuse(f"does not say which of its {layers} layers each instruction belongs to")
        return cls(insns, segments, data, addresses, layer)

    def launch(self, name: str, nodes: tuple[str, ...] = (), **meta: Any) -> Launch:
        """Return a launch with the content of this image. Keyword arguments are added to its `meta`."""
        arrays = {"insns": self.insns, **{f"dram.{segment}": content for segment, content in self.data.items()}}
        if self.layer is not None:
            arrays["layer"] = self.layer
        described: dict[str, Any] = {"segments": [asdict(segment) for segment in self.segments]}
        if self.bases:
            described |= {"bases": dict(self.bases)}
        return Launch(name, nodes, {**described, **meta}, arrays)

    def dram(self, inputs: Mapping[str, Array], samples: int) -> Dram:
        """Return the DRAM before the launch. `inputs` maps segments to uint8 (samples, size). Other bytes are 0."""
        contents = {**inputs, **self.data}
        segments = []
        for segment in self.segments:
            shared = segment.name in contents
            count = 1 if segment.kind in CARRIED else samples
            content = contents[segment.name] if shared else np.zeros((samples, segment.size), np.uint8)
            data = np.ascontiguousarray(content).reshape(count, segment.size)
            segments.append(Segment(segment.name, segment.address, data, segment.kind in FILLED, shared))
        return Dram(segments)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(segment.name for segment in self.segments if segment.kind in RETURNED)


@dataclass
class Segment:
    """A segment of DRAM. `data` is contiguous uint8: (1, size) if all samples share it, else (samples, size)."""

    name: str
    address: int
    data: Array
    initialised: bool = True  # filled by the host before the launch
    shared: bool = False  # `data` is also used elsewhere (a constant, an input), so copy it before the first write

    @property
    def end(self) -> int:
        return self.address + int(self.data.shape[1])

    def unshare(self, samples: int) -> None:
        """Make `data` writable: if it is shared, replace it by a copy for each sample."""
        if self.shared:
            self.data = np.repeat(self.data, samples // len(self.data), axis=0)
            self.shared = False


class Dram:
    """Byte-addressed memory made of segments that do not overlap."""

    def __init__(self, segments: Iterable[Segment]) -> None:
        self.segments = sorted(segments, key=lambda segment: segment.address)
        for before, after in zip(self.segments, self.segments[1:], strict=False):
            if before.end > after.address:
                raise MachineError("DRAM", f"segment '{before.name}' overlaps '{after.name}'")
        self._starts = [segment.address for segment in self.segments]
        self._ends = [segment.end for segment in self.segments]

    def __getitem__(self, name: str) -> Array:
        return next(segment.data for segment in self.segments if segment.name == name)

    def copy(self) -> Dram:
        """Return a copy. Both objects share the bytes of a segment until one of them writes (copy on write)."""
        for segment in self.segments:
            segment.shared = True
        return Dram(replace(segment) for segment in self.segments)

    @property
    def own_bytes(self) -> int:
        """The number of bytes that only this object uses, and that a copy of it would duplicate."""
        return sum(segment.data.nbytes for segment in self.segments if not segment.shared)

    def window(self, address: int, rows: int, row_bytes: int, stride: int, where: str) -> Array:
        """Return a readable view of DRAM, (samples or 1, rows, row_bytes). Row i begins at `address + i * stride`.

        Raises MachineError, naming `where`, if the rows leave their segment.
        """
        segment = self.segment(address, address + (rows - 1) * stride + row_bytes, where)
        return _view(segment, address, (rows, row_bytes), stride)

    def writable(self, samples: int, address: int, rows: int, row_bytes: int, stride: int, where: str) -> Array:
        """Return a writable view of DRAM, (samples, rows, row_bytes). A shared segment is first copied for each sample.

        Raises MachineError, naming `where`, if the rows leave their segment.
        """
        segment = self.segment(address, address + (rows - 1) * stride + row_bytes, where)
        segment.unshare(samples)
        return _view(segment, address, (rows, row_bytes), stride)

    def span(self, samples: int, address: Array, end: Array, written: Array) -> tuple[Array, Array]:
        """Return one uint8 vector that contains all segments, and the place of n byte ranges in it, int64 [n, 2].

        Range i has the addresses `address[i]` to `end[i] - 1`. `written`, bool [n], marks the ranges that will be
        written. A place has two numbers: the index of the range for the first sample, and the distance to the next
        sample (0 if samples share the data). Raises MachineError if a range leaves its segment.

        The vector is a view of the process's memory from the first segment to the last. Bytes between segments must not
        be accessed. The vector is valid until a segment is replaced.
        """
        starts, ends = (np.array([getattr(s, name) for s in self.segments], np.int64) for name in ("address", "end"))
        # With NumPy for all ranges at once, because a launch may have a million accesses.
        home = np.searchsorted(starts, address, side="right") - 1
        used = end > address
        outside = used & ((home < 0) | (end > np.append(ends, 0)[home]))
        for index in np.flatnonzero(outside)[:1]:
            self.segment(int(address[index]), int(end[index]), "DRAM")
        for index in ascending(home[written & used]).tolist():
            self.segments[index].unshare(samples)
        first = np.array([segment.data.__array_interface__["data"][0] for segment in self.segments], np.int64)
        last = first + np.array([segment.data.size for segment in self.segments], np.int64)
        base = int(first.min()) if len(first) else 0
        pitch = np.array([s.data.shape[1] if s.data.shape[0] > 1 else 0 for s in self.segments], np.int64)
        place = np.zeros((len(address), 2), np.int64)
        home = home[used]
        place[used] = np.stack([address[used] - starts[home] + first[home] - base, pitch[home]], axis=1)
        return np.asarray(_Bytes(base, int(last.max(initial=base)) - base)), place

    def segment(self, address: int, end: int, where: str) -> Segment:
        """Return the segment with the addresses `address` to `end - 1`. Raises MachineError if there is none."""
        index = bisect_right(self._starts, address) - 1
        if index < 0 or end > self._ends[index]:
            places = ", ".join(f"{s.name} {s.address:#x}..{s.end:#x}" for s in self.segments)
            reason = f"DRAM bytes {address:#x}..{end:#x} are not inside one segment"
            raise MachineError(where, reason, f"segments are {places or 'none'}")
        return self.segments[index]


class _Bytes:
    """An object that np.asarray converts to a view of the process's memory from `base` on."""

    def __init__(self, base: int, size: int) -> None:
        self.__array_interface__ = {"data": (base, False), "shape": (size,), "typestr": "|u1", "version": 3}


def _view(segment: Segment, address: int, extent: tuple[int, int], stride: int) -> Array:
    data = segment.data
    shape = (data.shape[0], *extent)
    strides = (data.strides[0], stride, 1)
    return np.ndarray(shape, np.uint8, data, address - segment.address, strides)
