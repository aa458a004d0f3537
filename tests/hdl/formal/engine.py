"""k-induction and bounded model checking of BTOR2 designs, with the SMT solver Bitwuzla.

Yosys writes BTOR2 (Niemetz et al., CAV 2018), a list of numbered operations on bit vectors and arrays. A `Trace` makes
solver terms of these operations for one cycle after another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import bitwuzla as smt

#: Inputs whose names begin with this have the same value in all cycles.
CONSTANT = "constant_"
#: Cells of the block under proof, and not of the properties, have names with this instance name.
INNER = re.compile(r"(\$flatten)?\\?dut[.\\]")
BINARY = {
    "and": smt.Kind.BV_AND,
    "or": smt.Kind.BV_OR,
    "xor": smt.Kind.BV_XOR,
    "xnor": smt.Kind.BV_XNOR,
    "nand": smt.Kind.BV_NAND,
    "nor": smt.Kind.BV_NOR,
    "add": smt.Kind.BV_ADD,
    "sub": smt.Kind.BV_SUB,
    "mul": smt.Kind.BV_MUL,
    "sll": smt.Kind.BV_SHL,
    "srl": smt.Kind.BV_SHR,
    "sra": smt.Kind.BV_ASHR,
    "concat": smt.Kind.BV_CONCAT,
    "read": smt.Kind.ARRAY_SELECT,
}
#: Operations whose result is a Boolean, which BTOR2 represents by one bit.
COMPARISON = {
    "eq": smt.Kind.EQUAL,
    "neq": smt.Kind.DISTINCT,
    "ult": smt.Kind.BV_ULT,
    "ulte": smt.Kind.BV_ULE,
    "ugt": smt.Kind.BV_UGT,
    "ugte": smt.Kind.BV_UGE,
    "slt": smt.Kind.BV_SLT,
    "slte": smt.Kind.BV_SLE,
    "sgt": smt.Kind.BV_SGT,
    "sgte": smt.Kind.BV_SGE,
}
UNARY = {
    "not": smt.Kind.BV_NOT,
    "neg": smt.Kind.BV_NEG,
    "redand": smt.Kind.BV_REDAND,
    "redor": smt.Kind.BV_REDOR,
    "redxor": smt.Kind.BV_REDXOR,
}
TERNARY = {"write": smt.Kind.ARRAY_STORE}
VALUES = ("const", "constd", "consth", "input", "state")
#: A fault replaces an operation by another one.
SWAPS = {
    "and": "or",
    "or": "and",
    "xor": "or",
    "add": "sub",
    "sub": "add",
    "eq": "neq",
    "neq": "eq",
    "ult": "ulte",
    "ulte": "ult",
    "ugt": "ugte",
    "ugte": "ugt",
    "slt": "slte",
    "slte": "slt",
    "sgt": "sgte",
    "sgte": "sgt",
    "srl": "sra",
    "sra": "srl",
    "redor": "redand",
    "redand": "redor",
}


@dataclass(frozen=True)
class Node:
    """An operation. `args` are numbers of nodes; for slice and extensions, also widths. `inner`: of the block."""

    op: str
    sort: int
    args: tuple[int, ...]
    text: str = ""
    inner: bool = False


@dataclass(frozen=True)
class Design:
    """A BTOR2 design: nodes by number, and what is assumed and claimed."""

    sorts: Mapping[int, tuple[int, ...]]  # the width of a bit vector, or the sorts of an array's index and element
    nodes: Mapping[int, Node]
    init: Mapping[int, int]
    next: Mapping[int, int]
    constraints: Sequence[int]
    bads: Sequence[int]
    wires: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Design:
        """Read BTOR2 text, with the comments that Yosys writes about cells."""
        # A memory of one element has no address; here it has one bit, which is 0.
        sorts: dict[int, tuple[int, ...]] = {-1: (1,)}
        nodes = {-1: Node("const", -1, (), "0")}
        init, following, wires = dict[int, int](), dict[int, int](), dict[str, int]()
        constraints, bads = list[int](), list[int]()
        cells = list[str]()
        for line in text.splitlines():
            words = line.split()
            if not words or words[0] == ";":
                if words[1:2] == ["begin"]:
                    cells.append(" ".join(words[2:]))
                elif words[1:2] == ["end"] and cells:
                    cells.pop()
                continue
            number, op = int(words[0]), words[1]
            if op == "sort":
                sorts[number] = tuple(max(int(word), 1) for word in words[3:])
            elif op == "init":
                init[int(words[3])] = int(words[4])
            elif op == "next":
                following[int(words[3])] = int(words[4])
            elif op in ("constraint", "bad"):
                (constraints if op == "constraint" else bads).append(int(words[2]))
            elif op == "output":
                pass
            else:
                is_value = op in VALUES
                args = () if is_value else tuple(int(word) for word in words[3:] if re.fullmatch(r"-?\d+", word))
                text_ = " ".join(words[3:]) if is_value else ""
                nodes[number] = Node(op, int(words[2]), args, text_, bool(cells and INNER.match(cells[-1])))
                if op == "uext" and words[4] == "0" and len(words) > 5:
                    wires[words[5]] = int(words[3])
        return cls(sorts, nodes, init, following, constraints, bads, wires)

    def cone(self) -> set[int]:
        """Return the nodes that claims and assumptions depend on."""
        waiting, cone = [*self.constraints, *self.bads], set[int]()
        while waiting:
            number = waiting.pop()
            if number in cone:
                continue
            cone.add(number)
            waiting += self.operands(number)
            if self.nodes[number].op == "state":
                waiting += [table[number] for table in (self.init, self.next) if number in table]
        return cone

    def operands(self, number: int) -> tuple[int, ...]:
        node = self.nodes[number]
        return node.args[:1] if node.op in ("slice", "uext", "sext") else node.args

    def faults(self) -> list[tuple[str, int]]:
        """Return the faults that the block can have: what happens to an operation, and its number."""
        faults = list[tuple[str, int]]()
        for number in sorted(self.cone()):
            node = self.nodes[number]
            if not node.inner or node.op in (*VALUES, "write"):
                continue
            if node.op in SWAPS or node.op == "ite":
                faults.append(("swap", number))
            if node.op not in ("uext", "sext", "concat", "slice") and len(self.sorts[node.sort]) == 1:
                faults.append(("flip", number))
        return faults

    def faulty(self, kind: str, number: int) -> Design:
        """Return the design with another operation instead of node `number`, or with its lowest bit inverted."""
        node = self.nodes[number]
        if kind == "flip":
            extra = max(self.nodes) + 1
            return replace(self, nodes={**self.nodes, extra: node, number: Node("flip", node.sort, (extra,))})
        if node.op == "ite":
            changed = replace(node, args=(node.args[0], node.args[2], node.args[1]))
        else:
            changed = replace(node, op=SWAPS[node.op])
        return replace(self, nodes={**self.nodes, number: changed})


class NoAnswer(Exception):
    """The solver has not answered in time."""


class Trace:
    """Solver terms of a design, cycle by cycle. The first state is the initial one, or any if `anywhere`."""

    def __init__(self, design: Design, anywhere: bool, limit: int) -> None:
        self.design = design
        self.terms = smt.TermManager()
        options = smt.Options()
        options.set(smt.Option.PRODUCE_MODELS, True)
        options.set(smt.Option.TIME_LIMIT_PER, limit)
        self.solver = smt.Bitwuzla(self.terms, options)
        self.order = sorted(design.cone())
        self.one = self.terms.mk_bv_one(self.terms.mk_bv_sort(1))
        self.zero = self.terms.mk_bv_zero(self.terms.mk_bv_sort(1))
        self.sorts = dict[int, Any]()
        for number, sizes in design.sorts.items():
            if len(sizes) == 1:
                self.sorts[number] = self.terms.mk_bv_sort(sizes[0])
            else:
                self.sorts[number] = self.terms.mk_array_sort(*(self.sorts[size] for size in sizes))
        self.constants = dict[int, Any]()
        self.frames = list[dict[int, Any]]()
        self.anywhere = anywhere

    def extend(self) -> dict[int, Any]:
        """Add a cycle in which the assumptions hold. Return its terms by node."""
        frame: dict[int, Any] = {}
        for number in self.order:
            if number not in frame:
                self._evaluate(number, frame)
        self.frames.append(frame)
        for number in self.design.constraints:
            self.solver.assert_formula(self._holds(frame[number]))
        return frame

    def _evaluate(self, number: int, frame: dict[int, Any]) -> None:
        waiting = [number]
        while waiting:
            at = waiting[-1]
            missing = [] if at in frame else [arg for arg in self._needs(at) if arg not in frame]
            if missing:
                waiting += missing
                continue
            if at not in frame:
                frame[at] = self._term(at, frame)
            waiting.pop()

    def _needs(self, number: int) -> tuple[int, ...]:
        node = self.design.nodes[number]
        if node.op != "state":
            return self.design.operands(number)
        starts = not self.frames and not self.anywhere and number in self.design.init
        return (self.design.init[number],) if starts else ()

    def _term(self, number: int, frame: dict[int, Any]) -> Any:
        node = self.design.nodes[number]
        make = self.terms.mk_term
        sort = self.sorts[node.sort]
        if node.op == "state":
            return self._state(number, sort, frame)
        if node.op == "input":
            if not node.text.startswith(CONSTANT):
                return self.terms.mk_const(sort)
            return self.constants.setdefault(number, self.terms.mk_const(sort))
        if node.op in ("const", "constd", "consth"):
            base = {"const": 2, "constd": 10, "consth": 16}[node.op]
            return self.terms.mk_bv_value(sort, node.text.split()[0], base)
        args = [frame[arg] for arg in self.design.operands(number)]
        if node.op == "slice":
            return make(smt.Kind.BV_EXTRACT, args, [node.args[1], node.args[2]])
        if node.op in ("uext", "sext"):
            kind = smt.Kind.BV_ZERO_EXTEND if node.op == "uext" else smt.Kind.BV_SIGN_EXTEND
            return make(kind, args, [node.args[1]]) if node.args[1] else args[0]
        if node.op == "flip":
            return make(smt.Kind.BV_XOR, [args[0], self.terms.mk_bv_one(sort)])
        if node.op == "ite":
            return make(smt.Kind.ITE, [self._holds(args[0]), *args[1:]])
        if node.op in COMPARISON:
            return make(smt.Kind.ITE, [make(COMPARISON[node.op], args), self.one, self.zero])
        return make((UNARY | BINARY | TERNARY)[node.op], args)

    def _state(self, number: int, sort: Any, frame: Mapping[int, Any]) -> Any:
        if self.frames:
            following = self.design.next.get(number)
            return self.frames[-1][number if following is None else following]
        if self.anywhere or number not in self.design.init:
            return self.terms.mk_const(sort)
        value = frame[self.design.init[number]]
        return self.terms.mk_const_array(sort, value) if sort.is_array() else value

    def _holds(self, bit: Any) -> Any:
        return self.terms.mk_term(smt.Kind.EQUAL, [bit, self.one])

    def fails(self, frame: Mapping[int, Any]) -> Any:
        """Return a term: some claim fails in a cycle."""
        bads = [self._holds(frame[number]) for number in self.design.bads]
        return bads[0] if len(bads) == 1 else self.terms.mk_term(smt.Kind.OR, bads)

    def possible(self, *terms: Any) -> bool:
        """Return whether all terms can hold. Raises NoAnswer if the solver does not know in time."""
        result = self.solver.check_sat(*terms)
        if result == smt.Result.UNKNOWN:
            raise NoAnswer
        return bool(result == smt.Result.SAT)

    def assume(self, term: Any) -> None:
        self.solver.assert_formula(term)

    def negated(self, term: Any) -> Any:
        return self.terms.mk_term(smt.Kind.NOT, [term])

    def told(self) -> str:
        """Return the counterexample that the solver has just found: the wires of the top module in each cycle."""
        lines = []
        for name, number in sorted(self.design.wires.items()):
            if "$" not in name and all(number in frame for frame in self.frames):
                values = [self.solver.get_value(frame[number]) for frame in self.frames]
                if not values[0].sort().is_array():
                    lines.append(f"{name}: " + " ".join(f"{int(value.value(2), 2):x}" for value in values))
        return "\n".join(lines)


@dataclass(frozen=True)
class Outcome:
    """Whether a proof holds. `why` is "" then, and else "counterexample", "not inductive" or "vacuous"."""

    why: str
    trace: str = ""


def induction(design: Design, depth: int, limit: int) -> Outcome:
    """Prove the claims by k-induction: from reset for k = `depth` cycles, and from any k cycles in which they hold."""
    outcome = bounded(design, depth, limit)
    if outcome.why:
        return outcome
    trace = Trace(design, anywhere=True, limit=limit)
    for _ in range(depth):
        trace.assume(trace.negated(trace.fails(trace.extend())))
    return Outcome("not inductive", trace.told()) if trace.possible(trace.fails(trace.extend())) else Outcome("")


def bounded(design: Design, depth: int, limit: int) -> Outcome:
    """Prove that the claims hold in the first `depth` cycles after reset."""
    trace = Trace(design, anywhere=False, limit=limit)
    for _ in range(depth):
        fails = trace.fails(trace.extend())
        if trace.possible(fails):
            return Outcome("counterexample", trace.told())
        trace.assume(trace.negated(fails))
    return Outcome("") if trace.possible() else Outcome("vacuous")


def pipeline(design: Design, depth: int, limit: int) -> Outcome:
    """Prove that the claims hold `depth` cycles after any state, whatever held before: for blocks without feedback."""
    trace = Trace(design, anywhere=True, limit=limit)
    for _ in range(depth + 1):
        frame = trace.extend()
    if trace.possible(trace.fails(frame)):
        return Outcome("counterexample", trace.told())
    return Outcome("") if trace.possible() else Outcome("vacuous")


Method = Callable[[Design, int, int], Outcome]
