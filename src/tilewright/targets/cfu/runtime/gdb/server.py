"""The server: it accepts one client on the loopback interface, and answers the client's packets.

The packets are described in GDB's manual, "Remote Serial Protocol: Packets" and "General Query Packets".
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable

from tilewright.errors import InputError, option
from tilewright.targets.cfu.config import RAM_BASE
from tilewright.targets.cfu.runtime.core import Process, Trap
from tilewright.targets.cfu.runtime.seam import CfuError
from tilewright.targets.cfu.timing.state import READS, WRITES

from .control import Control, Stop, Watchpoint
from .packets import INTERRUPT, MAX_BYTES, Connection
from .registers import PC, Registers, monitor

HOST = "127.0.0.1"
OK = b"OK"
BAD = b"E16"
FAULT = b"E0e"  # EINVAL and EFAULT
FEATURES = b"qXfer:features:read+;swbreak+;hwbreak+;vContSupported+;QStartNoAckMode+"
#: GDB's signal numbers, by the first words of the kind of a trap. All other traps are SIGTRAP.
SIGNALS = {"illegal": 4, "misaligned": 10, "instruction address misaligned": 10, "limit": 24, "environment": 12}
SIGTRAP = 5
SIGSEGV = 11
SIGINT = 2
SIGABRT = 6
#: By packet type Z2, Z3 or Z4: the watched accesses, and the word for a stop reply.
WATCHES = {"2": (WRITES, "watch"), "3": (READS, "rwatch"), "4": (READS | WRITES, "awatch")}
WORDS = dict(WATCHES.values())
KILLED = "killed by the debugger"
NUMBER = re.compile(rb"[0-9a-fA-F]{1,16}")
MOST_WATCHES = 64  # limit of the number of watchpoints


class Server:
    """A port for one client. `drive` runs a process under the client's control."""

    def __init__(self, port: int) -> None:
        """Open a port (0: any free port). Raises InputError if the port cannot be opened."""
        self._socket = socket.socket()
        try:
            self._socket.bind((HOST, port))
        except OSError as error:
            self._socket.close()
            reason = f"port {port} cannot be opened: {error.strerror or error}"
            raise InputError(option("--gdb", "port"), reason, "give another port, or 0 for any free one") from None
        self.port: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()

    def drive(self, process: Process) -> Trap | None:
        """Wait for the client, then run a process until it ends. Return the trap that ended the process, or None.

        The server listens only when the process is ready. Before that, connections are refused, and GDB tries again.
        An accepted client would wait for the first answer, and after a timeout send its packet a second time.
        """
        control = Control(process)
        control.arrive()
        self._socket.listen(1)
        client, _ = self._socket.accept()
        with client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(client)
            try:
                return Session(connection, control).run()
            finally:
                connection.finish()


class Session:
    """A client and its process, which is at its first instruction when the session begins."""

    def __init__(self, connection: Connection, control: Control) -> None:
        self.connection = connection
        self.process = control.process
        self.control = control
        self.registers = Registers(self.process)
        self._stop = Stop("step")
        self._shown = 0  # the number of bytes of `devices.text` that the client has received
        self._ended = False
        self._trap: Trap | None = None

    def run(self) -> Trap | None:
        """Answer packets until the program ends, or run it to its end after a detach. Return its trap, or None."""
        while not self._ended:
            packet = self.connection.receive()
            if packet is None:
                return self.process.trap(KILLED)
            if packet != INTERRUPT:
                self._answer(packet)
        return self._trap

    def _answer(self, packet: bytes) -> None:
        """Execute and answer a packet. The answer to an unknown packet is empty, as the protocol requires."""
        letter = packet[:1].decode("latin-1")
        rest = packet[1:]
        find: Callable[[bytes], bytes | None] | None = {
            "?": lambda _: self._reply(),
            "g": lambda _: b"".join(map(self._hex_of, range(PC + 1))),
            "G": self._write_all,
            "p": self._read_one,
            "P": self._write_one,
            "m": self._read_memory,
            "M": lambda text: self._write_memory(text, bytes.fromhex),
            "X": lambda text: self._write_memory(text, None),
            "Z": lambda text: self._point(text, True),
            "z": lambda text: self._point(text, False),
            "c": self._continue,
            "s": self._step,
            "C": lambda text: self._continue(text.partition(b";")[2]),
            "S": lambda text: self._step(text.partition(b";")[2]),
            "v": self._verbose,
            "q": self._query,
            "Q": self._set,
            "H": lambda _: OK,
            "T": lambda _: OK,
            "D": self._detach,
            "k": self._kill,
        }.get(letter)
        try:
            answer = find(rest) if find else b""
        except (ValueError, IndexError):
            answer = BAD
        except CfuError as error:
            self._say(f"{error}\n")
            self.connection.send(b"X%02x" % SIGABRT)
            raise
        if answer is not None:
            self.connection.send(answer)

    # Registers and memory

    def _hex_of(self, number: int) -> bytes:
        return self.registers.read(number).hex().encode()

    def _read_one(self, text: bytes) -> bytes:
        number = _number(text)
        return self._hex_of(number) if number < len(self.registers) else BAD

    def _write_one(self, text: bytes) -> bytes:
        number, _, value = text.partition(b"=")
        return OK if self.registers.write(_number(number), bytes.fromhex(value.decode())) else BAD

    def _write_all(self, text: bytes) -> bytes:
        data = bytes.fromhex(text.decode())
        if len(data) < 4 * (PC + 1):
            return BAD
        return OK if all(self.registers.write(n, data[4 * n : 4 * n + 4]) for n in range(PC + 1)) else BAD

    def _read_memory(self, text: bytes) -> bytes:
        address, size = map(_number, text.split(b","))
        m = self.process.m
        at = address - RAM_BASE
        if size > MAX_BYTES // 2:
            return BAD
        if 0 <= at < len(m.ram.byte):  # the protocol allows an answer with fewer bytes than requested
            return m.ram.byte[at : at + size].tobytes().hex().encode()
        devices = [self.process.devices.load(place & ~3) for place in range(address, address + size)]
        if not size or None in devices:
            return FAULT
        return bytes((value or 0) >> 8 * (address + n & 3) & 255 for n, value in enumerate(devices)).hex().encode()

    def _write_memory(self, text: bytes, decoded: Callable[[str], bytes] | None) -> bytes:
        place, _, content = text.partition(b":")
        address, size = map(_number, place.split(b","))
        data = decoded(content.decode()) if decoded else content
        if len(data) != size:
            return BAD
        return OK if self.control.write(address, data) else FAULT

    # Breakpoints and watchpoints

    def _point(self, text: bytes, is_set: bool) -> bytes:
        """Set (`is_set`) or remove a breakpoint or watchpoint. A repeated packet is not an error."""
        kind, place, size = text.split(b";")[0].split(b",")
        address = _number(place)
        watches = self.control.watches
        # Software breakpoints (0) and hardware breakpoints (1) are equal here: neither changes memory.
        if kind in (b"0", b"1"):
            return OK if self.control.set_breakpoint(address, is_set) else FAULT
        if kind.decode() not in WATCHES:
            return b""  # an empty answer means: not supported
        watch = Watchpoint(address, address + max(1, _number(size)), WATCHES[kind.decode()][0])
        if is_set and watch not in watches:
            if len(watches) == MOST_WATCHES:
                return BAD
            watches.append(watch)
        elif not is_set and watch in watches:
            watches.remove(watch)
        return OK

    # Running

    def _continue(self, place: bytes) -> bytes | None:
        return self._from(place) or self._resume(lambda: self.control.go(self._interrupted))

    def _step(self, place: bytes) -> bytes | None:
        return self._from(place) or self._resume(self.control.step)

    def _from(self, place: bytes) -> bytes:
        if place and not self.registers.write(PC, _number(place).to_bytes(8, "little")[:4]):
            return FAULT
        return b""

    def _resume(self, run: Callable[[], Stop]) -> bytes | None:
        """Run to the next stop. After a trap, the process ends here if the client has not changed the pc."""
        before = self._stop.trap
        if before and before.pc == self.process.pc:
            self._trap = before
            self._ended = True
            return b"X%02x" % _signal(before)
        self._stop = run()
        self._show_text()
        if self._stop.kind == "exit":
            self._ended = True
        return self._reply()

    def _interrupted(self) -> bool:
        self._show_text()
        return self.connection.interrupted()

    def _reply(self) -> bytes:
        stop = self._stop
        if stop.kind == "exit":
            return b"W%02x" % ((self.process.devices.exit_code or 0) & 0xFF)
        signal = _signal(stop.trap) if stop.trap else SIGINT if stop.kind == "interrupt" else SIGTRAP
        reason = "swbreak:;" if stop.kind == "breakpoint" else ""
        if stop.watch:
            reason = f"{WORDS[stop.watch.kinds]}:{stop.address:x};"
        return f"T{signal:02x}thread:1;{reason}".encode()

    def _detach(self, _: bytes) -> None:
        self.connection.send(OK)
        self.connection.finish()
        before = self._stop.trap
        self._trap = before if before and before.pc == self.process.pc else self.process.go()
        self._ended = True

    def _kill(self, _: bytes) -> None:
        self._trap = self.process.trap(KILLED)
        self._ended = True

    def _verbose(self, text: bytes) -> bytes | None:
        if text == b"Cont?":
            return b"vCont;c;C;s;S;r"
        if text.startswith(b"Kill"):
            self.connection.send(OK)
            self._kill(text)
            return None
        if not text.startswith(b"Cont;"):
            return b""
        action = text.split(b";")[1].partition(b":")[0]
        if action[:1] == b"r":
            first, end = map(_number, action[1:].split(b","))
            return self._resume(lambda: self.control.step_in(first, end, self._interrupted))
        return self._continue(b"") if action[:1] in b"cC" else self._step(b"")

    # Queries

    def _query(self, text: bytes) -> bytes | None:
        name, _, rest = text.partition(b":")
        if name == b"Supported":
            return b"PacketSize=%x;%b" % (MAX_BYTES - 16, FEATURES)
        if name == b"Xfer" and rest.startswith(b"features:read:target.xml:"):
            first, size = map(_number, rest.rpartition(b":")[2].split(b","))
            description = self.registers.description().encode()
            part = description[first : first + min(size, MAX_BYTES // 2)]
            return (b"m" if first + len(part) < len(description) else b"l") + part
        if text.startswith(b"Rcmd,"):
            command = bytes.fromhex(text[5:].decode()).decode("utf-8", "replace")
            for line in monitor(command, self.process):
                self._say(line + "\n")
            return OK
        fixed = {b"C": b"QC1", b"fThreadInfo": b"m1", b"sThreadInfo": b"l", b"Attached": b"1"}
        return fixed.get(name, b"")

    def _set(self, text: bytes) -> bytes | None:
        if text != b"StartNoAckMode":
            return b""
        self.connection.send(OK)
        self.connection.acknowledges = False
        return None

    def _say(self, text: str) -> None:
        data = text.encode()
        for at in range(0, len(data), MAX_BYTES // 4):
            self.connection.send(b"O" + data[at : at + MAX_BYTES // 4].hex().encode())

    def _show_text(self) -> None:
        text = self.process.devices.text
        if new := text[self._shown :]:
            self._say(bytes(new).decode("utf-8", "replace"))
            self._shown = len(text)


def _number(text: bytes) -> int:
    """Return the hexadecimal number in a packet. Raises ValueError for other text."""
    if not NUMBER.fullmatch(text):
        raise ValueError(text)
    return int(text, 16)


def _signal(trap: Trap) -> int:
    if "access fault" in trap.kind:
        return SIGSEGV
    return next((number for kind, number in SIGNALS.items() if trap.kind.startswith(kind)), SIGTRAP)
