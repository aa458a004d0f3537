"""GDB's remote protocol: breakpoints, watchpoints and steps change neither values nor cycles."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.targets.cfu.asm import (
    A0,
    A1,
    A2,
    A3,
    DATA,
    NOP,
    S0,
    S1,
    T0,
    T1,
    T2,
    add,
    addi,
    branch,
    csrr,
    custom,
    div,
    halt,
    image,
    jal,
    jalr,
    li,
    lw,
    mul,
    store,
    sw,
)  # fmt: skip
from tests.targets.cfu.compiler import compiled
from tests.targets.cfu.elf_files import tiny
from tests.targets.cfu.gdb_client import debugged
from tests.targets.cfu.running import run
from tilewright.cli import main
from tilewright.targets.cfu.config import RAM_BASE, Config
from tilewright.targets.cfu.runtime.core import Run
from tilewright.targets.cfu.runtime.elf import Executable
from tilewright.targets.cfu.runtime.system import UART

PC = 32
#: Loads, products, quotients, commands, stores, a CSR, a call and two loops: everything whose timing may depend on the
#: instruction before. 6 turns; DATA + 4 * turn gets the sums.
CALL = jal(1, 16)
PROGRAM = [
    *li(S0, DATA), *li(S1, 6), *li(31, UART),
    lw(A0, S0), div(A1, A0, S1), mul(A2, A1, S1), div(A3, A1, S1),  # 24: the loop
    add(A2, A2, A1), lw(T0, S0, 64), custom(0, T0, T0, A2), custom(1, A2, T0, A3),
    store("sb", S1, S0, 64), lw(T1, S0, 64), csrr(T2, 0xB00), add(A2, A2, T1),
    sw(A2, S0), addi(S0, S0, 4), CALL, addi(S1, S1, -1), branch("bne", S1, 0, -64), jal(0, 12),
    jalr(0, 1), NOP,  # the function
    addi(A0, 0, ord(".")), store("sb", A0, 31), *halt(0),
]  # fmt: skip
LOOP = RAM_BASE + 24
VALUES = np.arange(40, dtype="<i4").tobytes()


def program() -> Executable:
    return image(PROGRAM, VALUES)


def same(found: Run, expected: Run) -> None:
    """Both runs did the same, in the same cycles, counted at the same instructions."""
    assert (found.cycles, found.instret, found.exit_code) == (expected.cycles, expected.instret, expected.exit_code)
    for name in ("executed",):
        assert np.array_equal(getattr(found, name), getattr(expected, name))
    for name in ("regs", "lost", "times", "code"):
        assert np.array_equal(getattr(found.machine, name), getattr(expected.machine, name)), name
    assert np.array_equal(found.machine.ram.byte, expected.machine.ram.byte)


@pytest.fixture(scope="module")
def alone() -> Run:
    found = run(program(), Config())
    assert found.exit_code == 0 and found.text == "." and found.instret > 100
    return found


def test_steps_do_not_change_cycles(alone: Run) -> None:
    with debugged(program()) as one:
        assert one.client.ask("?").startswith("T05")
        steps = 1
        while one.client.ask("vCont;s:1;c").startswith("T05"):
            steps += 1
        found = one.end()
    assert steps == alone.instret
    same(found, alone)


def test_breakpoints_on_all_instructions_do_not_change_cycles(alone: Run) -> None:
    with debugged(program()) as one:
        for index in range(len(PROGRAM)):
            assert one.client.ask(f"Z0,{RAM_BASE + 4 * index:x},4") == "OK"
        stops = 0
        while (reply := one.client.ask("c")).startswith("T05thread:1;swbreak"):
            stops += 1
        assert reply == "W00" and stops == alone.instret - 1
        same(one.end(), alone)


def test_a_breakpoint_in_a_loop_and_registers() -> None:
    with debugged(program()) as one:
        client = one.client
        assert client.ask(f"Z1,{LOOP:x},4") == "OK"
        for turn in range(6):
            assert "swbreak" in client.ask("vCont;c")
            assert client.register(PC) == LOOP and client.register(S1) == 6 - turn
            everything = bytes.fromhex(client.ask("g"))
            assert len(everything) == 33 * 4 and everything[4 * S0 : 4 * S0 + 4] == (DATA + 4 * turn).to_bytes(
                4, "little"
            )
        assert client.ask(f"P{S1:x}=01000000") == "OK"
        assert client.ask(f"z1,{LOOP:x},4") == "OK"
        assert client.ask("c") == "W00"
        assert one.end().text == "."


def test_pc_and_counters_can_be_followed() -> None:
    with debugged(program()) as one:
        client = one.client
        assert client.ask(f"P20={(LOOP + 68).to_bytes(4, 'little').hex()}") == "OK"
        assert client.ask("P20=00000000") == "E16"  # there is no code
        assert client.ask("p40") == client.ask("P21=00") == "E16"  # no register; a read-only one
        assert client.monitor("cycles").endswith("0 instructions\n")
        assert client.ask("s").startswith("T05")
        cycles, instructions = client.register(33), client.register(34)
        assert client.monitor("cycles") == f"{cycles:,} cycles, {instructions:,} instructions\n" and instructions == 1
        assert "fetch" in client.monitor("waits") and "cycles" in client.monitor("help")


def test_watchpoints_name_the_address(alone: Run) -> None:
    with debugged(program()) as one:
        client = one.client
        assert client.ask(f"Z2,{DATA + 4:x},4") == client.ask(f"Z3,{DATA + 65:x},1") == "OK"
        assert client.ask(f"Z4,{DATA + 69:x},3") == client.ask(f"Z4,{UART:x},1") == "OK"
        stops = []
        while (reply := client.ask("c")) != "W00":
            stops.append(reply.split(";")[1])
        same(one.end(), alone)
    expected = []
    for turn in range(6):
        at = DATA + 4 * turn + 64
        for kind in ("r", "w", "r"):  # the load of a word, the store of a byte, the load of the word
            end = at + (1 if kind == "w" else 4)
            if kind == "r" and at <= DATA + 65 < end:
                expected.append(f"rwatch:{DATA + 65:x}")
            elif at < DATA + 72 and end > DATA + 69:
                expected.append(f"awatch:{DATA + 69:x}")
        if turn == 1:
            expected.append(f"watch:{DATA + 4:x}")
    assert stops == [*expected, f"awatch:{UART:x}"]


def test_steps_of_a_range_run_a_call_and_stop_at_breakpoints(alone: Run) -> None:
    with debugged(program()) as one:
        client = one.client
        client.ask(f"Z0,{LOOP:x},4")
        client.ask("c")
        call = RAM_BASE + 4 * PROGRAM.index(CALL)
        assert client.ask(f"vCont;r{LOOP:x},{call + 4:x}:1").startswith("T05")
        assert client.register(PC) == call + 16  # outside of the range: in the function
        client.ask(f"z0,{LOOP:x},4")
        client.ask(f"Z0,{LOOP + 8:x},4")
        assert "swbreak" in client.ask(f"vCont;r{RAM_BASE:x},{RAM_BASE + 4 * len(PROGRAM):x}:1")
        assert client.register(PC) == LOOP + 8
        assert client.ask("D") == "OK"
        same(one.end(), alone)


def test_memory_and_binary_packets() -> None:
    with debugged(program()) as one:
        client = one.client
        assert client.ask(f"m{DATA:x},c") == VALUES[:12].hex()
        assert client.ask(f"M{DATA:x},3:010203") == "OK"
        escaped = "".join(f"}}{chr(byte ^ 32)}" if chr(byte) in "#$}*" else chr(byte) for byte in b"a}#$*\x00")
        assert client.ask(f"X{DATA + 3:x},6:{escaped}") == "OK"
        assert client.ask(f"m{DATA:x},9") == (b"\1\2\3a}#$*\0").hex()
        end = RAM_BASE + Config().ram_bytes
        assert client.ask(f"m{end - 2:x},8") == "0000"  # as many as there are
        assert client.ask(f"m{UART + 8:x},4") == "01000000"
        for wrong in (f"m{end:x},4", f"M{end - 2:x},4:00000000", "m0,4", f"X{UART:x},1:a"):
            assert client.ask(wrong) == "E0e", wrong
        for wrong in ("m0", "mxyz,4", f"M{DATA:x},4:00", f"M{DATA:x},1:zz", f"m{DATA:x},fffff", "m-1,4", "P1=", "p"):
            assert client.ask(wrong) == "E16", wrong


def test_code_that_is_written_is_decoded() -> None:
    """By the client, and by the program where a breakpoint is."""
    change = addi(A0, 0, 9)
    words = [*li(A1, change), *li(A2, RAM_BASE + 28), sw(A1, A2), NOP, NOP, addi(A0, 0, 3), addi(A0, A0, 1), *halt()]
    with debugged(image(words)) as one:
        assert one.client.ask(f"Z0,{RAM_BASE + 28:x},4") == "OK"
        assert "swbreak" in one.client.ask("c")
        assert one.client.ask(f"M{RAM_BASE + 32:x},4:{addi(A0, A0, 2).to_bytes(4, 'little').hex()}") == "OK"
        assert one.client.ask("c") == "W0b"
        assert one.end().exit_code == 11


def test_an_endless_loop_is_interrupted_and_killed() -> None:
    with debugged(image([jal(0, 0)])) as one:
        one.client.send(b"c")
        assert one.client.byte() == "+"
        one.client.socket.sendall(b"\x03")
        assert one.client.receive().startswith("T02")
        assert one.client.ask("s").startswith("T05")  # a jump to itself is one step
        one.client.send(b"k")
        found = one.end()
    assert found.trap is not None and found.trap.kind == "killed by the debugger" and found.exit_code is None


@pytest.mark.parametrize("last", [b"vKill;1", b""])
def test_the_run_ends_with_its_client(last: bytes) -> None:
    with debugged(image([jal(0, 0)])) as one:
        if last:
            one.client.send(last)
            assert one.client.receive() == "OK"
        else:
            one.client.socket.close()
        one._thread.join(30)
        assert one._found[0].trap is not None and "killed" in one._found[0].trap.kind


@pytest.mark.parametrize(
    ("words", "signal", "kind"),
    [
        ([0], 4, "illegal"),
        ([lw(A0, 0)], 11, "access fault"),
        ([lw(A0, 2, 1)], 10, "misaligned"),
        ([0x100073], 5, "break"),
    ],
)
def test_a_trap_is_a_signal(words: list[int], signal: int, kind: str) -> None:
    program = image([*li(2, DATA), *words, NOP])
    with debugged(program) as one:
        assert one.client.ask("c").startswith(f"T{signal:02x}")
        assert one.client.register(PC) == RAM_BASE + 8
        assert one.client.ask("c") == f"X{signal:02x}"
        found, expected = one.end(), run(program, Config())
    assert found.trap is not None and kind in found.trap.kind
    assert found.trap == expected.trap and found.cycles == expected.cycles


def test_the_limit_stops_a_run() -> None:
    with debugged(image([jal(0, 0)]), max_instructions=1000) as one:
        assert one.client.ask("c").startswith("T18")
        one.client.ask("D")
        found = one.end()
    assert found.trap is not None and "limit" in found.trap.kind


def test_registers_and_rows_of_the_cfu() -> None:
    """The results of a launch are there when the array has finished, not when the next command comes."""
    start = 1 << 20 | 2 << 10 | 1  # 1 x 1 times 1 x 2
    words = [
        *li(A0, 0x05000000), *li(A1, 0x0307F000), *li(A2, start), *[NOP] * 6,
        *(custom(0, T0, A0, 0), custom(0, T0, 0, 0), custom(1, T0, A1, 0), custom(1, T0, 0, 0)), custom(2, T0, A2, 0),
        *[NOP] * 60, *halt(0),
    ]  # fmt: skip
    expected = run(image(words), Config())
    with debugged(image(words)) as one:
        client = one.client
        tree = ElementTree.fromstring(client.ask("qXfer:features:read:target.xml:0,2000")[1:])
        regs = {reg.get("name"): int(reg.get("regnum", "")) for reg in tree.iter("reg")}
        assert regs["zero"] == 0 and regs["pc"] == PC
        client.ask(f"Z0,{RAM_BASE + 4 * 16:x},4")
        assert "swbreak" in client.ask("c")
        assert client.register(regs["cfu_a_row"]) == 0 and client.register(regs["cfu_launches"]) == 0
        assert client.monitor("a 0").split()[:3] == ["5", "0", "0"] and client.monitor("b 0").split()[:3] == [
            "3",
            "7",
            "-16",
        ]
        client.ask("s")
        assert client.register(regs["cfu_k"]) == 1 and client.register(regs["cfu_pending"]) == 1
        assert client.monitor("c 0").split()[:2] == ["0", "0"]
        for _ in range(50):
            client.ask("s")
        assert client.register(regs["cfu_pending"]) == 0
        assert client.monitor("c 0").split()[:3] == ["15", "35", "-80"]
        assert "0 to 4095" in client.monitor("c 4096")
        client.ask("D")
        same(one.end(), expected)


def test_a_cfu_of_the_users_has_no_registers() -> None:
    def execute(funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
        return a + b + cycle, cycle + 7

    expected = run(program(), Config(), cfu=execute)
    with debugged(program(), cfu=execute) as one:
        assert one.client.ask("p23") == "E16" and "only the built-in" in one.client.monitor("c 0")
        while one.client.ask("s") != "W00":
            pass
        same(one.end(), expected)


def test_packets_that_are_wrong() -> None:
    with debugged(program()) as one:
        client = one.client
        client.send(b"?", checksum=0)
        assert client.byte() == "-"
        assert client.ask("?").startswith("T05")
        client.socket.sendall(b"-")
        assert client.receive().startswith("T05")  # once more
        assert client.ask("vMustReplyEmpty") == client.ask("~") == client.ask("") == client.ask("Z9,0,4") == ""
        assert client.ask("Z0,0,4") == client.ask(f"Z0,{RAM_BASE + 2:x},4") == "E0e"
        assert client.ask("Z0") == client.ask("vCont;rx,y") == client.ask("qRcmd,0") == "E16"
        assert client.ask("qSupported:swbreak+").startswith("PacketSize=")
        assert client.ask("QStartNoAckMode") == "OK"
        client.quiet = True
        assert client.ask("qC") == "QC1"
        client.socket.sendall(b"$" + b"a" * 200_000)
        assert one.end().trap is not None


def test_the_command_line_opens_a_port(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.elf"
    path.write_bytes(tiny())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["exec", str(path), "-t", "cfu", "--gdb", port]) == 2
    error = capsys.readouterr().err
    assert f"port {port} cannot be opened: Address already in use" in error and error.count("\n") == 1
    assert main(["exec", str(path), "-t", "cfu", "--gdb", "70000"]) == 2
    (tmp_path / "a.twp").write_bytes(b"no program")
    capsys.readouterr()
    assert main(["exec", str(tmp_path / "a.twp"), "--gdb", "0"]) == 2
    assert "--gdb: is for ELF files only" in capsys.readouterr().err


SOURCE = """
int sums[4];
__attribute__((noinline)) int kernel(int n) {
  int answer = 0;
  for (int i = 0; i < n; i++)
    __asm__ volatile(".insn r 0x0b, 0, 0, %0, %1, x0\\n.insn r 0x0b, 0, 0, x0, x0, x0" : "=r"(answer) : "r"(i));
  return n * n;
}
int main(void) {
  for (int i = 0; i < 4; i++) sums[i] = kernel(i + 2);
  return 5;
}
"""
SESSION = """
set pagination off
set confirm off
target remote localhost:{port}
break kernel
continue
printf "n %d, row %d\\n", $a0, $cfu_a_row
delete
watch sums[2]
continue
printf "sums %d %d, row %d\\n", sums[0], sums[2], $cfu_a_row
delete
stepi
monitor cycles
continue
"""


@pytest.mark.gdb
@pytest.mark.riscv
def test_a_session_of_gdb(tmp_path: Path) -> None:
    elf = compiled(tmp_path, SOURCE)
    command = [sys.executable, "-m", "tilewright", "exec", str(elf), "-t", "cfu", "--gdb", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as served:
        assert served.stderr and served.stdout
        port = served.stderr.readline().rpartition(":")[2].strip()
        (tmp_path / "session").write_text(SESSION.format(port=port))
        gdb = ["gdb-multiarch", "-nx", "-batch", "-x", str(tmp_path / "session"), str(elf)]
        shown = subprocess.run(gdb, capture_output=True, text=True, timeout=TIMEOUT, check=False).stdout
        report = served.stdout.read()
    assert "Breakpoint 1, kernel (n=" in shown
    assert "n 2, row -1" in shown and "sums 4 16, row 8" in shown  # 2 + 3 + 4 rows
    assert "exited with code 05" in shown
    alone = run_alone(elf)
    assert f"{alone.cycles:,} cycles, {alone.instret:,} instructions" in report and "exit code 5" in report


TIMEOUT = 60


def run_alone(elf: Path) -> Run:
    from tilewright.targets.cfu.runtime import elf as files

    return run(files.load(elf), Config())
