# A stub: the clock of the configuration. Not run: no design of this engine has been placed.
create_clock -name aclk -period $period [get_ports aclk]
