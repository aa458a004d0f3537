# A stub: the clock of the configuration. Add the pins and all other constraints of the board.
create_clock -name aclk -period $period [get_ports aclk]
