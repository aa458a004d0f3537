"""VTA's compiler. It lowers graph nodes to layers, finds a plan for each layer, and emits instruction streams."""
