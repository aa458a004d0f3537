"""Write docs/bm1684x-api.md: every function of the vendor's device API, and how far it is modelled.

Run `python -m docs.device_api`. The names are those that the vendor's model exports; the state follows from the tables
of `capi/`, the random calls that have digests (tests/targets/bm1684x/random_calls/digests.txt) and the patterns of
names in docs/bm1684x_api/.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.targets.bm1684x.random_calls.families import calls
from tests.targets.bm1684x.random_calls.table import lines
from tilewright.targets.bm1684x.capi.gathers import REFUSED
from tilewright.targets.bm1684x.capi.sequences import SEQUENCED
from tilewright.targets.bm1684x.capi.tpu import FUNCTIONS, DeviceApi
from tilewright.targets.bm1684x.conformance.calls import CALLS

FOLDER = Path(__file__).parent / "bm1684x_api"
PAGE = Path(__file__).parent / "bm1684x-api.md"
HEAD = """# The device API of `bm1684x`, function by function

With this page you can look up whether a published C kernel runs here. `DeviceApi` has all functions except those in the
state "not modelled", under the C names of the vendor's functional model ([docs/bm1684x.md](bm1684x.md#c-names)).
`python -m docs.device_api` writes this page anew.

| state | meaning | functions |
|---|---|---|
"""
MEANINGS = {
    "compared": "equal to the vendor's model in random calls (all bytes of local memory and DDR) or golden vectors",
    "modelled": "the call was not compared; the table has the reason",
    "refused": "the vendor's model refuses every call, and so do we; the table has its message",
    "not modelled": "raises an error; the table has the reason",
}


def _patterns(name: str) -> list[tuple[str, str]]:
    """Return the patterns of a file, with the text after each."""
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    found = (line.partition(": ") for line in lines if line and not line.startswith("#"))
    return [(pattern, text) for pattern, _, text in found]


def states() -> dict[str, tuple[str, str]]:
    """Return the state of each function, and the reason if it is not compared."""
    compared = "|".join(f"(?:{pattern})" for pattern, _ in _patterns("compared.txt"))
    reasons = _patterns("reasons.txt")
    equal = {f"tpu_{'' if name.startswith(('gdma', 'hau')) else 'bdc_'}{name}" for name in CALLS}
    equal |= {f"tpu_bdc_{name}" for name in SEQUENCED}
    equal |= {call.name for line in lines() for call in calls(line.family, line.chunk, line.length)}
    found = {}
    for name in (FOLDER / "names.txt").read_text(encoding="utf-8").split():
        state = "modelled"
        if name in REFUSED:
            state = "refused"
        elif name not in FUNCTIONS and not hasattr(DeviceApi, name):
            state = "not modelled"
        elif name in equal or re.fullmatch(compared, name):
            state = "compared"
        reason = next((text for pattern, text in reasons if re.fullmatch(pattern, name)), "")
        found[name] = (state, "" if state == "compared" else reason)
    return found


def page() -> str:
    """Return the page."""
    known = states()
    counts = {state: sum(own == state for own, _ in known.values()) for state in MEANINGS}
    rows = "".join(f"| {state} | {meaning} | {counts[state]} |\n" for state, meaning in MEANINGS.items())
    table = "".join(f"| `{name}` | {state} | {reason} |\n" for name, (state, reason) in sorted(known.items()))
    return f"{HEAD}{rows}| all | | {len(known)} |\n\n| function | state | reason |\n|---|---|---|\n{table}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
