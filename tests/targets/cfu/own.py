"""What a CFU of the user's needs in tests: the head of its module, and examples."""

from __future__ import annotations

from tests.conftest import ROOT

DOT, DIGITS = ROOT / "examples" / "dot.v", ROOT / "examples" / "digits" / "digits.tflite"
PORTS = """module Cfu (input clk, input reset, input cmd_valid, output cmd_ready, input [9:0] cmd_payload_function_id,
    input [31:0] cmd_payload_inputs_0, input [31:0] cmd_payload_inputs_1, output rsp_valid, input rsp_ready,
    output [31:0] rsp_payload_outputs_0);
"""
