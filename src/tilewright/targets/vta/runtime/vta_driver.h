/* Host driver of a program for VTA. Written by tilewright; do not edit. */
#ifndef VTA_DRIVER_H_
#define VTA_DRIVER_H_

#include <stdint.h>

#define VTA_LAUNCHES @count@
#define VTA_SEGMENTS @segment_count@

/* DRAM: load vta_dram.bin to the start of an area of this size, at a multiple of VTA_DRAM_ALIGN. */
#define VTA_DRAM_BYTES @bytes@u
#define VTA_DRAM_ALIGN @align@u

/* Access to the machine: its registers, at byte offsets, and the CPU's caches. `flush` writes back and invalidates what
   the caches hold of an area; without caches it does nothing. */
typedef struct {
  uint32_t (*read)(uint32_t offset);
  void (*write)(uint32_t offset, uint32_t value);
  void (*flush)(uint8_t *start, uint32_t bytes);
} vta_port;

/* What a segment of DRAM is: VTA_CONST and VTA_INOUT have bytes in vta_dram.bin; the host fills VTA_INPUT before the
   launch, and reads VTA_OUTPUT and VTA_INOUT after it. */
enum { @kinds@ };

typedef struct {
  uint32_t launch, kind;
  const char *name;
  uint32_t at, bytes; /* in the area */
} vta_segment;

extern const vta_segment vta_segments[VTA_SEGMENTS];

/* Returns a launch's segment by its name, or NULL. */
const vta_segment *vta_find(uint32_t launch, const char *name);

/* Runs a launch, from its registers to the end of FINISH. `dram` is the area as the CPU sees it, `address` the same as
   the machine sees it. Reads the status at most `polls` times. Returns the machine's cycles from the launch to the end
   of FINISH; -1 if there is no such launch, or if the machine is not done. */
int64_t vta_run(const vta_port *port, uint8_t *dram, uint32_t address, uint32_t launch, uint32_t polls);

#endif
