#include "cfu_machine.h"

// From reset to main: set up stack and global pointer, clear .bss. After main, end the run with its result.
.section .text.start, "ax"
.globl _start
.type _start, @function
_start:
.option push
.option norelax
  la gp, __global_pointer$
.option pop
  la sp, stack_top
  la t0, bss_begin
  la t1, bss_end
1:
  bgeu t0, t1, 2f
  sw zero, 0(t0)
  addi t0, t0, 4
  j 1b
2:
  call main
  li t0, CFU_HALT
  sw a0, 0(t0)
3:
  j 3b
.size _start, . - _start
