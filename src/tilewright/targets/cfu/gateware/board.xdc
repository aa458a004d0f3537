# Not run: no design has been placed. The clock of the configuration, for a build of the CFU alone; in CFU-Playground the
# SoC constrains it.
create_clock -name clk -period $period [get_ports clk]
