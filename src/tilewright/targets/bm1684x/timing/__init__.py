"""How long commands take."""
