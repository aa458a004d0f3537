"""VTA's instruction set: `fields` (opcodes, ids), `stream` (layouts, columns, units), `alu`, `text`, `meaning`."""
