"""VTA's instruction set: `fields` (numbers and layouts), `stream` (decoded columns), `text` (assembly)."""
