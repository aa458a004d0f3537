"""What a layer computes."""
