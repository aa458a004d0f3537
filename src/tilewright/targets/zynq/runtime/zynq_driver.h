/* PS driver of the VGG16 engine. Written by tilewright; do not edit. */
#ifndef ZYNQ_DRIVER_H_
#define ZYNQ_DRIVER_H_

#include <stdint.h>

#define ZYNQ_LAYERS @count@
/* Whether every layer reads the one before it: zynq_run does all of them. */
#define ZYNQ_CHAIN @chain@

/* DDR: zynq_ddr.bin lies at its start; data and results follow. */
#define ZYNQ_DDR_WEIGHT @weight_at@u
#define ZYNQ_DDR_FACTOR @factor_at@u
#define ZYNQ_DDR_BIAS @bias_at@u
#define ZYNQ_DDR_DATA @data_at@u
#define ZYNQ_DDR_RESULT @result_at@u
#define ZYNQ_DDR_BYTES @bytes@u

/* How the engine is reached. `move` copies a block from DDR into a store, or with `write` back. On a board: accesses
   to the engine's AXI slave, and a DMA transfer with the caches cleaned or invalidated around it. */
typedef struct {
  uint32_t (*read)(uint32_t offset);
  void (*write)(uint32_t offset, uint32_t value);
  void (*move)(uint32_t store, uint32_t write, uint8_t *ddr, uint32_t bytes);
} zynq_port;

/* Codes of one tensor, channels last. */
uint32_t zynq_input_bytes(uint32_t layer);
uint32_t zynq_output_bytes(uint32_t layer);

/* One layer. Returns the number of page services, or -1 where there is no such layer. */
int64_t zynq_run_layer(const zynq_port *port, uint8_t *ddr, uint32_t layer, const uint8_t *input, uint8_t *output);

/* All layers of a chain; `scratch` holds the largest tensor between two layers. -1 where there is no chain. */
int64_t zynq_run(const zynq_port *port, uint8_t *ddr, const uint8_t *input, uint8_t *output, uint8_t *scratch);

#endif
