"""The instruction set of the BM1684X: from the bytes of a queue to commands on memory, and back.

An *operation* (operation.py, operations/) is a function on arrays, with the rules that refuse its operands (rules.py).
A *command* (command.py) is an operation whose operands lie in memory: it can be run, and it knows which bytes it reads
and writes. A *format* (stream.py, formats.txt) says which bits of an encoded command hold which field. An *instruction*
(parts.py, operations/) says which fields of a format hold which operand of an operation.

`stream.decode` turns the bytes of a queue into encoded commands. `meaning.command_of` finds the instruction whose
fields match, and reads the command; `meaning.encoded` goes the same way back. elaborate.py merges the queues of both
engines into one legal order, and makes the step table that the passes in sim/ order, check and time. undefined.py
follows uninitialised values from command to command, so that only those that reach a result are reported.
"""
