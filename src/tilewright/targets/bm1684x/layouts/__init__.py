"""Where each element of an operand lies."""
