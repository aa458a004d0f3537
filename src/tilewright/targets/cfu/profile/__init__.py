"""Where the cycles of a run went: by function, source line, category and instruction; misses; a speedscope file."""
