"""The answers of all commands, as text and as JSON, beside a golden transcript."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable

from tests.debug.planted import right, sample, wrong
from tilewright.debug.session import Session
from tilewright.debug.verbs import VERBS, completions, obey
from tilewright.errors import TilewrightError

#: Commands on a sound program. The answer of each depends on the moment to which those before it have gone.
SOUND = """
where; memories; tensors; launches; breaks; list; list 0 3; units; queues; insn; insn 3
step; step 7; where; units; queues; back; back 2; insn; why; why 9; waits; waits 8; waits 2
who acc[3]; writers acc[3]; next out[3]; readers wgt[0]; changes acc[3,0,2]; changes acc[3,0,2] 1
step 3; who acc[3]; next wgt[0]; show acc[3]; show acc[3] hex; p dram.out[0:4]; show t0[0,0] real; show t1[0] real
show acc hex; show out[0:2,0,3]; print acc[3] real; depends acc[3]; depends dram.out[0]; list; list #2 2
start; break 5; break when n > 12 and op == "alu"; break layer conv2d_0; watch acc[3]; watch acc[3] if acc[3,0,2] > 0
breaks; run; run; run; reverse; delete 1; delete 2; delete 3; run; reverse; rc; delete 9
start; until acc[3]; until acc[3]; since acc[3]; end; where; list; why; since acc[3]
cycle 0; cycle 100; cycle 1000000; token load->compute; token compute->store 1; token compute->store 99; token x
to 4; to #6; at 0x3; to 999; layer conv2d_0; layer nothing; launch 0; launch nothing; launch 99
findings; findings 1; differs; suspects; show; show x; show acc[9999]; show acc[a]; show acc[0,0,0,0]; show dram.x[0
show dram[0]; show 3.y; step 1 2; step x; stepp; break x; break when x > 1; break when acc > 1; watch acc[0] if acc > 1
end; run; help; help who; help list; help nothing; ? step
"""
#: Commands on a program with a fault.
FAULTY = (
    "findings; findings 1; differs; where; suspects; suspects 2; end; units; queues; step 99; cycle 3; why 9; waits 8"
)


#: The characters of an answer in the transcript; of the others, there is a checksum.
SHOWN = 400


def shown(answer: str) -> str:
    rest = answer[SHOWN:]
    return f"{answer[:SHOWN]} ... {len(rest)} more, {zlib.crc32(rest.encode()):08x}" if rest else answer


def transcript(session: Session, commands: str) -> str:
    lines = [session.head]
    for command in (word.strip() for line in commands.strip().splitlines() for word in line.split(";")):
        lines.append(f"> {command}")
        try:
            text, value = obey(session, command)
            lines += [shown(text), shown(json.dumps(value))]
        except TilewrightError as error:
            lines.append(f"{type(error).__name__}: {error}")
        lines.append(f"  written: {session.written}")
    return "\n".join(lines) + "\n"


def test_answers(golden: Callable[[str, str], None]) -> None:
    session: Session = Session(right(), sample())
    text = transcript(session, SOUND)
    names = sorted({name for verb in VERBS for name in verb.names})
    text += "".join(f"{name}: {' '.join(completions(session, name))}\n" for name in (*names, "help", "nothing"))
    for fault in ("deadlock", "out-of-range", "missing-push", "wrong-shift", "tpu-wrong-shift"):
        faulty: Session = Session(wrong(fault), sample())
        text += f"\n== {fault}\n" + transcript(faulty, FAULTY)
    golden("debug_answers.txt", text)
