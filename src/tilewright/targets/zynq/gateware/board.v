// The VGG16 engine, config $digest: a wrapper of $core.v with the port names that block designs recognise.
module $top (
    input aclk,
    input aresetn,
    output interrupt,
    input [$register:0] s_axi_awaddr, input s_axi_awvalid, output s_axi_awready,
    input [31:0] s_axi_wdata, input [3:0] s_axi_wstrb, input s_axi_wvalid, output s_axi_wready,
    output [1:0] s_axi_bresp, output s_axi_bvalid, input s_axi_bready,
    input [$register:0] s_axi_araddr, input s_axi_arvalid, output s_axi_arready,
    output [31:0] s_axi_rdata, output [1:0] s_axi_rresp, output s_axi_rvalid, input s_axi_rready,
    // The port of a block RAM, for the AXI BRAM controller.
    input bram_clk, input bram_rst, input bram_en, input [$strobes:0] bram_we, input [$address:0] bram_addr,
    input [$data:0] bram_wrdata, output [$data:0] bram_rddata
);
    assign s_axi_rresp = 2'b00;
    $core core (
        .clk(aclk), .rst(!aresetn), .interrupt(interrupt),
        .bram_address(bram_addr[$address:$byte]), .bram_enable(bram_en), .bram_write(&bram_we),
        .bram_write_data(bram_wrdata), .bram_read_data(bram_rddata),
        .control__aw__payload(s_axi_awaddr), .control__aw__valid(s_axi_awvalid), .control__aw__ready(s_axi_awready),
        .control__w__payload({s_axi_wstrb, s_axi_wdata}), .control__w__valid(s_axi_wvalid),
        .control__w__ready(s_axi_wready), .control__b__payload(s_axi_bresp), .control__b__valid(s_axi_bvalid),
        .control__b__ready(s_axi_bready), .control__ar__payload(s_axi_araddr), .control__ar__valid(s_axi_arvalid),
        .control__ar__ready(s_axi_arready), .control__r__payload(s_axi_rdata), .control__r__valid(s_axi_rvalid),
        .control__r__ready(s_axi_rready)
    );
endmodule
