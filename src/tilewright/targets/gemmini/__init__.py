"""Gemmini: a systolic array with a scratchpad, an accumulator and three controllers behind a reservation station."""
