"""The custom-0 instructions: one table of numbers, meanings and roles."""
