"""Ways to damage a file. Each takes the bytes of a valid one and a generator, on which alone the result depends."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Mutator = Callable[[bytes, np.random.Generator], bytes]

INTEGERS = (-1, 0, 1, 2, 3, 7, 127, 255, 1 << 15, (1 << 16) - 1, 1 << 20, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1)
#: JSON texts that stand in the place of a value.
VALUES = (
    *("null", "true", "-1", "0", "3.5", "1e400", "-1e-400", "NaN", "Infinity", "-0.0", '""', '"x"', "[]", "{}"),
    *(
        "1099511627776",
        "18446744073709551616",
        "9" * 5000,
        "1" + "0" * 400,
        '"' + "9" * 5000 + '"',
        '"' + "w" * 9000 + '"',
    ),
    *(
        r'"\ud800"',
        r'"a\udfffb"',
        r'"\u001b[31m"',
        r'"\u202e"',
        r'"\u0000"',
        '"../x"',
        "[[]]",
        '[{"x": [1]}]',
        '{"": 0}',
    ),
    *("[" * 200 + "]" * 200, "[" * 3000 + "]" * 3000, '{"a":' * 100_000 + "0" + "}" * 100_000, "[" * 100_000),
)
WORDS = (
    *VALUES[:24],
    "",
    "0x",
    "0x" + "f" * 4000,
    "1_0",
    "\u0661",
    "\x1b[2J",
    "\u202e",
    "a=b",
    "--",
    "=",
    "nan",
    "$(x)",
)
_MARK = "<the damage>"


def bytewise(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes changed, cut out, inserted or repeated; blocks swapped; or the rest of the file gone."""
    if not data:
        return rng.bytes(8)
    at, span = int(rng.integers(len(data))), int(rng.integers(1, 64))
    other = int(rng.integers(len(data)))
    low, high = sorted((at, other))
    changed = np.frombuffer(data, np.uint8).copy()
    where = rng.integers(0, len(data), int(rng.integers(1, 9)))
    if rng.random() < 0.3:  # near the front, where headers are
        where %= min(len(data), 256)
    match int(rng.integers(8)):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + data[at + span :]
        case 2:
            return data[:at] + data[at : at + span] * 2 + data[at + span :]
        case 3:
            return data[:at] + rng.bytes(span) + data[at:]
        case 4 if high >= low + span:
            swapped = data[:low] + data[high : high + span] + data[low + span : high]
            return swapped + data[low : low + span] + data[high + span :]
        case 5:
            changed[where] ^= (1 << rng.integers(0, 8, where.size)).astype(np.uint8)
        case 6:
            changed[where] = rng.choice(np.array([0, 1, 127, 128, 255]), where.size)
        case _:
            changed[where] = rng.integers(0, 256, where.size)
    return changed.tobytes()


def integers(data: bytes, rng: np.random.Generator) -> bytes:
    """Aligned integers of 2, 4 or 8 bytes replaced, mostly near the front or the end, where formats keep tables."""
    changed, width = bytearray(data), int(rng.choice([2, 4, 4, 8]))
    for _ in range(int(rng.integers(1, 4))):
        span = max(1, len(data) - width)
        reach = min(span, 20_000) if rng.random() < 0.5 else span
        at = int(rng.integers(reach))
        at = (at if rng.random() < 0.3 else span - at) // width * width
        value = INTEGERS[int(rng.integers(len(INTEGERS)))] & ((1 << 8 * width) - 1)
        changed[at : at + width] = value.to_bytes(width, "little")
    return bytes(changed[: len(data)])


def text(data: bytes, rng: np.random.Generator) -> bytes:
    """Words of a text replaced by odd ones; lines gone, repeated or swapped."""
    lines = data.decode("utf-8", "replace").split("\n")
    for _ in range(int(rng.integers(1, 4))):
        at, other = (int(rng.integers(len(lines))) for _ in range(2))
        match int(rng.integers(6)):
            case 0:
                del lines[at : at + 1 + int(rng.integers(3))]
                lines = lines or [""]
            case 1:
                lines.insert(at, lines[other])
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case _:
                parts = re.findall(r"\w+|\W", lines[at]) or [""]
                parts[int(rng.integers(len(parts)))] = WORDS[int(rng.integers(len(WORDS)))]
                lines[at] = "".join(parts)
    start = "\ufeff" if rng.random() < 0.03 else ""
    return (start + "\n".join(lines)).encode("utf-8", "surrogatepass")


def json_text(data: bytes, rng: np.random.Generator) -> bytes:
    """One or two entries of a JSON text given another value or name, left out, repeated or moved."""
    whole = json.loads(data)
    raw = VALUES[int(rng.integers(len(VALUES)))]
    for _ in range(int(rng.integers(1, 3))):
        places = list(_places(whole))
        if not places:
            break
        parent, key = places[int(rng.integers(len(places)))]
        match int(rng.integers(8)):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, dict):
                parent[f"{key}{_MARK}"] = 1 if rng.random() < 0.5 else parent[key]  # a name twice
            case 2 if isinstance(parent, dict):
                names = ("", "x", "\ud800", "a" * 300, "__class__", "\x1b[m")
                parent[names[int(rng.integers(len(names)))]] = parent.pop(key)
            case 3:
                other, name = places[int(rng.integers(len(places)))]
                parent[key] = json.loads(json.dumps(other[name] if name in _keys(other) else None))
            case _:
                parent[key] = _MARK
    made = json.dumps(whole).replace(f'"{_MARK}"', raw).replace(_MARK, "")
    made = ("\ufeff" if rng.random() < 0.02 else "") + made
    return made.encode("utf-16" if rng.random() < 0.02 else "utf-8")


def _keys(parent: Any) -> Any:
    return parent if isinstance(parent, dict) else range(len(parent))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the place (container, key) of each entry; of long lists the first ones."""
    for key in list(_keys(value))[:12] if isinstance(value, dict | list) else ():
        yield value, key
        yield from _places(value[key])


def json_lines(data: bytes, rng: np.random.Generator) -> bytes:
    """One line of a file with a JSON object a line damaged, left out or repeated."""
    lines = data.splitlines(keepends=True)
    at = int(rng.integers(len(lines)))
    match int(rng.integers(6)):
        case 0:
            del lines[at]
        case 1:
            lines.insert(int(rng.integers(len(lines))), lines[at])
        case _:
            lines[at] = json_text(lines[at], rng).replace(b"\n", b"") + b"\n"
    return b"".join(lines)


def npy(data: bytes, rng: np.random.Generator) -> bytes:
    """The header of a .npy file damaged: its shape, its type, a word; or the bytes after it."""
    header, size = data[:128], int.from_bytes(data[8:10], "little")
    text, rest = header[10 : 10 + size].decode("latin-1"), data[10 + size :]
    odd = INTEGERS[int(rng.integers(len(INTEGERS)))]
    extents = ", ".join(map(str, [odd] * int(rng.integers(0, 5))))
    shapes = (
        "()",
        "(1,)",
        f"({odd},)",
        f"({odd}, {odd})",
        f"({extents})",
        f"({'1, ' * 70})",
        f"({'9' * 5000},)",
        "1",
        "[1]",
    )
    types = (
        "O",
        "|O",
        "<M8[s]",
        "<U9",
        "V0",
        "<f2",
        ">i4",
        "<c16",
        "b1",
        "|S0",
        "<i1",
        "x",
        "(2,3)i4",
        "i4,i4",
        "\x00",
    )
    match int(rng.integers(7)):
        case 0 | 1:
            text = re.sub(r"'shape': .*?\), ", lambda _: f"'shape': {rng.choice(shapes)}, ", text)
        case 2:
            text = re.sub(r"'descr': '.*?'", lambda _: f"'descr': '{rng.choice(types)}'", text)
        case 3:
            text = str(
                rng.choice(["(" * 300, "{", "{'a': (", "1 +", "'", "\\", "[" * 90_000, "\n\n", "{}", "{1: 2}", "é"])
            )
        case 4:
            at = int(rng.integers(len(text)))
            text = (
                text[:at]
                + str(rng.choice(["(", ")", "'", "\\", "\n", ",", "9" * 50, "#", "\x00", "j", "-"]))
                + text[at + 1 :]
            )
        case 5:
            text = text.replace("False", str(rng.choice(["True", "None", "1", "x"])))
        case _:
            return header[:6] + bytes([int(rng.integers(5)), int(rng.integers(3))]) + bytewise(data[8:], rng)
    coded = text.encode("latin-1")
    return header[:8] + (len(coded) & 0xFFFF).to_bytes(2, "little") + coded + rest


def zipped(data: bytes, rng: np.random.Generator) -> bytes:
    """One member of an archive damaged, left out or renamed; the archive itself is whole."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    names = sorted(members)
    described = [name for name in names if name.endswith(".json")]
    name = str(rng.choice(described if described and rng.random() < 0.6 else names))
    match int(rng.integers(10)):
        case 0:
            del members[name]
        case 1:
            odd = str(rng.choice(["x.npy", "../x.npy", "step/0/9.npy", "", "\x1b[m.npy", "program.json", "a" * 300]))
            members[odd] = members.pop(name)
        case 2:
            members[name] = bytewise(members[name], rng)
        case 3 if name.endswith(".npy"):
            members[name] = npy(members[name], rng)
        case _:
            members[name] = (json_text if name in described else array)(members[name], rng)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", int(rng.choice([0, 8, 8, 12]))) as archive:
        for key, content in members.items():
            archive.writestr(zipfile.ZipInfo(key, (1980, 1, 1, 0, 0, 0)), content)
    return made.getvalue()


def array(data: bytes, rng: np.random.Generator) -> bytes:
    """Some values of a .npy file replaced, or another type or shape that the header names rightly."""
    values = np.load(io.BytesIO(data))
    if values.dtype.kind == "U" and values.size == 1:  # golden vectors describe themselves so
        values = np.array(json_text(str(values).encode(), rng).decode("utf-8", "replace"))
    flat = np.ascontiguousarray(values).view(np.uint8).reshape(-1).copy() if values.size else np.zeros(0, np.uint8)
    if flat.size and rng.random() < 0.7:
        at = rng.integers(0, flat.size, int(rng.integers(1, 9)))
        flat[at] = rng.integers(0, 256, at.size) if rng.random() < 0.5 else rng.choice(np.array([0, 1, 127, 255]))
        values = flat.view(values.dtype).reshape(values.shape)
    else:
        other = [
            values.reshape(-1),
            values[None],
            values[:0] if values.ndim else values,
            values.astype("S4") if values.dtype.kind in "iufb" else values,
        ]
        other += [np.zeros(0, np.int64), np.array("text"), np.array(b"\xff"), values.T]
        values = other[int(rng.integers(len(other)))]
    made = io.BytesIO()
    np.save(made, values)
    return made.getvalue()
