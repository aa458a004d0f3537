/* Host driver of a program for VTA. Written by tilewright; do not edit. */
#include "vta_driver.h"

#include <stddef.h>
#include <string.h>

#include "vta_hw_spec.h"

typedef struct {
  uint32_t at, bytes; /* the launch's part of the area */
  uint32_t insns, insn_count;
  uint32_t bases[@regions@];
} vta_launch;

static const vta_launch launches[VTA_LAUNCHES] = {
@launches@
};

const vta_segment vta_segments[VTA_SEGMENTS] = {
@segments@
};

const vta_segment *vta_find(uint32_t launch, const char *name) {
  for (uint32_t i = 0; i < VTA_SEGMENTS; i++)
    if (vta_segments[i].launch == launch && strcmp(vta_segments[i].name, name) == 0) return &vta_segments[i];
  return NULL;
}

int64_t vta_run(const vta_port *port, uint8_t *dram, uint32_t address, uint32_t launch, uint32_t polls) {
  if (launch >= VTA_LAUNCHES) return -1;
  const vta_launch *it = &launches[launch];
  port->flush(dram + it->at, it->bytes);
@bases@
  port->write(VTA_REG_INSN_BASE, address + it->insns);
  port->write(VTA_REG_INSN_COUNT, it->insn_count);
  port->write(VTA_REG_CONTROL, 1);
  for (uint32_t i = 0; i < polls; i++) {
    if (port->read(VTA_REG_STATUS) & 1) {
      port->flush(dram + it->at, it->bytes); /* the CPU may have read ahead */
      return port->read(VTA_REG_CYCLES);
    }
  }
  return -1;
}
