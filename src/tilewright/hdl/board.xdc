# Not run: no design has been placed. The clock of the configuration; add the pins and all other constraints of the board.
create_clock -name $clock -period $period [get_ports $clock]
