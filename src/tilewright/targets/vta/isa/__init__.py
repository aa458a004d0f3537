"""VTA's instruction set: `fields` (numbers), `stream` (layouts, columns, units), `alu` (operations), `text`."""
