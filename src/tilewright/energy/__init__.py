"""First-order estimates of energy: counted events times a table of published energies. See docs/energy.md."""

from tilewright.energy.table import DEFAULT, Cost, Energy, Table, estimate, names, read

__all__ = ["DEFAULT", "Cost", "Energy", "Table", "estimate", "names", "read"]
