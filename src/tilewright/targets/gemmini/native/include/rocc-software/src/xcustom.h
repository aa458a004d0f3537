/* Custom instructions of RISC-V, which the library records. The names are those of rocc-software (xcustom.h). */
#ifndef TILEWRIGHT_XCUSTOM_H
#define TILEWRIGHT_XCUSTOM_H

#include <stdint.h>

#include "tilewright/recorder.h"

#define ROCC_INSTRUCTION_0_R_R(x, rs1, rs2, funct) \
    { tw_gemmini_command((funct), (uint64_t)(rs1), (uint64_t)(rs2), __FILE__, __LINE__); }

/* An instruction with a result: only Gemmini's counters have one. */
#define ROCC_INSTRUCTION_R_R_R(x, rd, rs1, rs2, funct) \
    { \
        (rd) = 0; \
        tw_gemmini_refuse(__FILE__, __LINE__, "performance counters are not modelled; use read_cycles()"); \
    }
#define ROCC_INSTRUCTION(x, rd, rs1, rs2, funct) ROCC_INSTRUCTION_R_R_R(x, rd, rs1, rs2, funct)

#endif
