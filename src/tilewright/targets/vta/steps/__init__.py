"""Instructions as steps: the tiles that each instruction touches, moves and multiplies, without data."""
