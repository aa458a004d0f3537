# A stub: the clock that the configuration names. Pins and the rest are the board's.
create_clock -name aclk -period $period [get_ports aclk]
