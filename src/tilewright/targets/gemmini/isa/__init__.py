"""Commands: their fields, their text, and the state that config commands give them."""
