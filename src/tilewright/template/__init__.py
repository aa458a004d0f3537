"""What `tilewright new-target` copies: a whole target, tested as it stands."""
