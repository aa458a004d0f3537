"""Values: element types, their arithmetic, and the bytes of the memories."""
