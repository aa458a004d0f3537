/* Declarations of the runtime and the driver that are not in vta/driver.h. */
#ifndef TILEWRIGHT_VTA_DRIVER_H
#define TILEWRIGHT_VTA_DRIVER_H

#include <stddef.h>
#include <stdint.h>
#include <vta/driver.h>

#pragma GCC visibility push(hidden)

/* End the program with a message: the call, and the error. */
__attribute__((noreturn, format(printf, 2, 3))) void tw_refuse(const char *call, const char *reason, ...);

/* An allocation. `number` counts the host's allocations. The runtime has an allocation for its micro-ops, at the same
 * address as in the Python runtime, and an allocation for its instructions, above all others. */
struct tw_region {
    uint64_t address, size;
    int64_t number;
};

enum { TW_UOPS = -1, TW_INSNS = -2, TW_NUMBERED = 0 };

/* Allocate memory, zeroed: a region of `kind`. Returns its place as the CPU sees it. Without memory, says so on stderr,
 * naming the call, and returns NULL. */
void *tw_allocate(const char *call, size_t size, int kind);

/* The allocation that holds `size` bytes from `at` on. Ends the program, naming the call, if none does. */
struct tw_region tw_region_of(const char *call, const void *at, size_t size);

/* Run instructions, of which `uops` bytes of micro-ops belong to the runtime. As VTADeviceRun. */
int tw_run(VTADeviceHandle device, uint64_t insns, uint32_t count, uint32_t wait, int debug, size_t uops);

/* Print micro-ops on stdout. */
void tw_print_uops(const void *uops, size_t size);

#pragma GCC visibility pop
#endif
