"""Instructions as steps: the tiles that each one touches, moves and multiplies, without their data."""
