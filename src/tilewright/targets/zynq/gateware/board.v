// The VGG16 engine, config $digest: a wrapper of $core.v with the port names that block designs recognise.
module $top (
    input aclk,
    input aresetn,
    output interrupt,
$axi_ports
    // The port of a block RAM, for the AXI BRAM controller.
    input bram_clk, input bram_rst, input bram_en, input [$strobes:0] bram_we, input [$address:0] bram_addr,
    input [$data:0] bram_wrdata, output [$data:0] bram_rddata
);
    assign s_axi_rresp = 2'b00;
    $core core (
        .clk(aclk), .rst(!aresetn), .interrupt(interrupt),
        .bram_address(bram_addr[$address:$byte]), .bram_enable(bram_en), .bram_write(&bram_we),
        .bram_write_data(bram_wrdata), .bram_read_data(bram_rddata),
$axi_control
    );
endmodule
