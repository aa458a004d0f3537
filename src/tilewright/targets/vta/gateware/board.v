// $name, config $digest: a wrapper of $core.v with the AXI port names that block designs recognise.
module $top (
    input aclk,
    input aresetn,
    output interrupt,
$axi_ports
    output [31:0] m_axi_araddr, output [7:0] m_axi_arlen, output [2:0] m_axi_arsize, output [1:0] m_axi_arburst,
    output m_axi_arvalid, input m_axi_arready,
    input [$data:0] m_axi_rdata, input [1:0] m_axi_rresp, input m_axi_rlast, input m_axi_rvalid, output m_axi_rready,
    output [31:0] m_axi_awaddr, output [7:0] m_axi_awlen, output [2:0] m_axi_awsize, output [1:0] m_axi_awburst,
    output m_axi_awvalid, input m_axi_awready,
    output [$data:0] m_axi_wdata, output [$bytes:0] m_axi_wstrb, output m_axi_wlast,
    output m_axi_wvalid, input m_axi_wready,
    input [1:0] m_axi_bresp, input m_axi_bvalid, output m_axi_bready
);
    wire [39:0] ar, aw;
    wire [$last:0] w;
    wire [2:0] size;
    wire [1:0] burst;
    assign {m_axi_arlen, m_axi_araddr} = ar;
    assign {m_axi_awlen, m_axi_awaddr} = aw;
    assign {m_axi_wlast, m_axi_wstrb, m_axi_wdata} = w;
    assign m_axi_arsize = size, m_axi_awsize = size, m_axi_arburst = burst, m_axi_awburst = burst;
    assign s_axi_rresp = 2'b00;
    $core core (
        .clk(aclk), .rst(!aresetn), .interrupt(interrupt), .size(size), .burst(burst),
        .bus__ar__payload(ar), .bus__ar__valid(m_axi_arvalid), .bus__ar__ready(m_axi_arready),
        .bus__r__payload({m_axi_rlast, m_axi_rdata}), .bus__r__valid(m_axi_rvalid), .bus__r__ready(m_axi_rready),
        .bus__aw__payload(aw), .bus__aw__valid(m_axi_awvalid), .bus__aw__ready(m_axi_awready),
        .bus__w__payload(w), .bus__w__valid(m_axi_wvalid), .bus__w__ready(m_axi_wready),
        .bus__b__payload(1'b0), .bus__b__valid(m_axi_bvalid), .bus__b__ready(m_axi_bready),
$axi_control
    );
endmodule
