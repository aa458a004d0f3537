"""The instruction set of the BM1684X: from the bytes of a queue to commands on memory, and back.

An *operation* (operation.py, operations/) is a function on arrays, with the rules that refuse its operands (rules.py).
A *command* (command.py) is an operation with operands in memory. Its methods run it, and list the bytes that it
accesses. A *format* (stream.py, formats.txt) assigns the bits of an encoded command to fields. An *instruction*
(parts.py, operations/) assigns the fields of a format to the operands of an operation.

`stream.decode` turns the bytes of a queue into encoded commands. `meaning.command_of` finds the instruction whose
fields match, and decodes the command. `meaning.encoded` encodes a command. elaborate.py merges the queues of both
engines into one legal order, and builds the step table for the passes in sim/, which order, check and time the
commands. undefined.py follows uninitialised values from command to command, and reports only values that reach a
result.
"""
