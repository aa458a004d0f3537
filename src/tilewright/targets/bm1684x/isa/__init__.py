"""Commands: their meaning on arrays, their encoding in fields, and their order in the machine's queues."""
