"""Recordings of kernels with other array headers or fields: run, or refused with one line."""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.targets.bm1684x import recordings
from tilewright.errors import ProgramError, TilewrightError
from tilewright.targets.bm1684x.isa.operations import DMA, TIU
from tilewright.targets.bm1684x.isa.stream import decode, encode
from tilewright.targets.bm1684x.runtime.device import Device
from tilewright.targets.bm1684x.runtime.recording import Recording

SEED = 20261122
ODD = (0, 1, 2, 3, 7, 15, 63, 64, 255, 4095, 65535, (1 << 31) - 1)


@pytest.fixture(scope="module")
def recorded() -> tuple[Device, Recording]:
    return recordings.recorded()


def replayed(device: Device, recording: Recording | Path) -> str:
    """`run`, or the kind of the error, which is one line."""
    try:
        device.replay(recording if isinstance(recording, Recording) else Recording.load(recording))
    except TilewrightError as error:
        assert "\n" not in str(error)
        return type(error).__name__
    return "run"


@pytest.mark.parametrize("claimed", [b"8589934592", b"4611686018427387904"])
def test_arrays_that_claim_another_size_are_refused(
    claimed: bytes, recorded: tuple[Device, Recording], tmp_path: Path
) -> None:
    path, archive = tmp_path / "r.npz", io.BytesIO()
    recorded[1].save(path)
    with zipfile.ZipFile(path) as good, zipfile.ZipFile(archive, "w") as odd:
        for name in good.namelist():
            content = good.read(name)
            begin, end = content.index(b"(") + 1, content.index(b",)")
            shape = content[begin:end]
            room = len(claimed) - len(shape)
            header = content.replace(shape + b",), }" + b" " * room, claimed + b",), }", 1)
            assert len(header) == len(content)
            odd.writestr(name, header)
    path.write_bytes(archive.getvalue())
    with pytest.raises(ProgramError, match=r"declares .* bytes|unpacks to"):
        Recording.load(path)


def test_odd_fields(recorded: tuple[Device, Recording]) -> None:
    device, recording = recorded
    outcomes = Counter[str]()
    for trial in range(30):
        rng = np.random.default_rng([SEED, trial])
        queues = {engine: decode(engine, recording.queues[engine]) for engine in (TIU, DMA)}
        for _ in range(int(rng.integers(1, 4))):
            queue = queues[str(rng.choice([TIU, DMA]))]
            place = int(rng.integers(len(queue)))
            command = queue[place]
            field = command.format.layout.fields[int(rng.integers(len(command.format.layout.fields)))]
            if field.name in command.fields:
                value = int(rng.choice(ODD)) & ((1 << field.width) - 1)
                queue[place] = replace(command, fields={**command.fields, field.name: value})
        odd = {engine: encode(queue) for engine, queue in queues.items()}
        outcomes[replayed(device, Recording(odd, recording.digest))] += 1
    assert min(outcomes["run"], outcomes["ProgramError"] + outcomes["MachineError"]) > 3
