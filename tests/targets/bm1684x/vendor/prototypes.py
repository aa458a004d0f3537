"""Parameters of functions that the vendor's model has, but its header does not declare.

They were found by calling the functions: their names continue those of the header, with a type as the last parameter.
"""

UNLISTED: dict[str, str] = {}
