"""The value pass: what each instruction does to the memories."""
