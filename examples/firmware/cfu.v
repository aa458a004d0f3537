// A CFU for convolutions: funct7 1 adds four products (code + 128) * weight to a sum and answers with it in the next
// cycle; funct7 0 sets the sum to the first operand. The ports are those of CFU-Playground:
//
//     tilewright run MODEL.tflite -t cfu --firmware DIR --cfu examples/firmware/cfu.v
module Cfu (
    input             clk,
    input             reset,
    input             cmd_valid,
    output            cmd_ready,
    input      [9:0]  cmd_payload_function_id,
    input      [31:0] cmd_payload_inputs_0,
    input      [31:0] cmd_payload_inputs_1,
    output reg        rsp_valid,
    input             rsp_ready,
    output reg [31:0] rsp_payload_outputs_0
);
    assign cmd_ready = ~rsp_valid;
    wire [6:0] funct7 = cmd_payload_function_id[9:3];

    // A signed code + 128 is the code with its sign bit inverted, read without a sign.
    wire signed [17:0] p0 = $signed({1'b0, cmd_payload_inputs_0[7:0] ^ 8'h80}) * $signed(cmd_payload_inputs_1[7:0]);
    wire signed [17:0] p1 = $signed({1'b0, cmd_payload_inputs_0[15:8] ^ 8'h80}) * $signed(cmd_payload_inputs_1[15:8]);
    wire signed [17:0] p2 = $signed({1'b0, cmd_payload_inputs_0[23:16] ^ 8'h80}) * $signed(cmd_payload_inputs_1[23:16]);
    wire signed [17:0] p3 = $signed({1'b0, cmd_payload_inputs_0[31:24] ^ 8'h80}) * $signed(cmd_payload_inputs_1[31:24]);
    wire signed [31:0] sum = p0 + p1 + p2 + p3;

    always @(posedge clk)
        if (reset) begin
            rsp_valid <= 0;
            rsp_payload_outputs_0 <= 0;
        end else if (cmd_valid && cmd_ready) begin
            rsp_valid <= 1;
            rsp_payload_outputs_0 <= funct7 == 1 ? rsp_payload_outputs_0 + sum : cmd_payload_inputs_0;
        end else if (rsp_ready)
            rsp_valid <= 0;
endmodule
