"""VTA's instruction set: `fields` (layouts, units), `stream` (decoding), `alu` and `own` (operations), `text`."""
