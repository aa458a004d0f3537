/* VTA's driver API: memory that the machine can address, and runs of instructions.
 *
 *     c++ host.cc $(tilewright config --vta --cflags --libs)
 *
 * Names and types are those of include/vta/driver.h of apache/tvm-vta at d4a15f627d5c. The machine is a simulator in a
 * process of its own. A wrong argument ends the program with one message on stderr.
 */
#ifndef VTA_DRIVER_H_
#define VTA_DRIVER_H_

#include <stdint.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Values of `cached` in VTAMemAlloc. Here the CPU's caches never hide anything. */
#define VTA_CACHED 1
#define VTA_NOT_CACHED 0

/* The most bytes of the instructions, or of the micro-ops, of a run. */
#ifndef VTA_MAX_XFER
#define VTA_MAX_XFER (1 << 25)
#endif

/* Allocations begin on a page. */
#define VTA_PAGE_BITS 12
#define VTA_PAGE_BYTES (1 << VTA_PAGE_BITS)

typedef void *VTADeviceHandle;
typedef uint32_t vta_phy_addr_t; /* an address as the machine sees it */

VTADeviceHandle VTADeviceAlloc(void);
void VTADeviceFree(VTADeviceHandle handle);

/* Run `insn_count` instructions from an address on, up to FINISH. Returns 0. Returns 1, and says why on stderr, if they
 * never reach FINISH, touch memory outside all allocations, or need more than `wait_cycles` cycles. */
int VTADeviceRun(VTADeviceHandle device, vta_phy_addr_t insn_phy_addr, uint32_t insn_count, uint32_t wait_cycles);

/* Memory that the CPU and the machine share, zeroed. NULL if none is left. A read by the machine of an allocation that
 * nothing has written is reported. */
void *VTAMemAlloc(size_t size, int cached);
void VTAMemFree(void *buf);
vta_phy_addr_t VTAMemGetPhyAddr(void *buf);

/* Copy between the host's memory and an allocation. The allocation may also be used directly. */
void VTAMemCopyFromHost(void *dst, const void *src, size_t size);
void VTAMemCopyToHost(void *dst, const void *src, size_t size);

/* The simulated memory is coherent, so these do nothing; nor is there a bitstream. */
void VTAFlushCache(void *vir_addr, vta_phy_addr_t phy_addr, int size);
void VTAInvalidateCache(void *vir_addr, vta_phy_addr_t phy_addr, int size);
void VTAProgram(const char *bitstream);

/* Of this model: the cycles of all runs of this program so far, and the number of their findings, such as races. */
unsigned long long tilewright_vta_cycles(void);
unsigned long long tilewright_vta_findings(void);

#ifdef __cplusplus
}
#endif
#endif
