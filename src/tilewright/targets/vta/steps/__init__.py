"""Instructions as steps: what each touches, moves and multiplies, without data."""
