"""Commands: what each means on arrays, in fields, and on the machine's queues."""
