"""Launches of compiled networks: their contents, how they run, and their text form."""
