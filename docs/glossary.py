"""Write the section of causes in docs/glossary.md, from the definitions that the targets declare.

    python -m docs.glossary

The rest of the page is written by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tilewright import targets
from tilewright.run import Defines
from tilewright.sim.figures import Definition

PAGE = Path(__file__).resolve().parent / "glossary.md"
#: The lines of the page around the section.
BEGIN, END = "<!-- written by docs/glossary.py -->\n", "<!-- end -->\n"


def causes() -> str:
    """Return the section: a table of causes for each target that declares them."""
    return "\n".join(line for name in targets.names() for line in _table(name))


def _table(name: str) -> Iterator[str]:
    target = targets.get(name)
    if isinstance(target, Defines):
        yield from (f"### {name}", "", "| cause | meaning | remedy |", "|---|---|---|")
        named: dict[Definition, list[str]] = {}
        for cause, definition in target.causes.items():
            named.setdefault(definition, []).append(cause)
        for definition, names in named.items():
            yield f"| {', '.join(f'`{cause}`' for cause in names)} | {definition.means} | {definition.remedy} |"
        yield ""


def page(text: str) -> str:
    """Return the page with its section written anew."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{causes()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
