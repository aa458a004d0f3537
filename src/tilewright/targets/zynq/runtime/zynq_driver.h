/* PS driver of the VGG16 engine. Written by tilewright; do not edit. */
#ifndef ZYNQ_DRIVER_H_
#define ZYNQ_DRIVER_H_

#include <stdint.h>

#define ZYNQ_LAYERS @count@
/* 1 if every layer reads the result of the layer before it, so that zynq_run can run them all. */
#define ZYNQ_CHAIN @chain@

/* Offsets in DDR: load zynq_ddr.bin at its start; data and results follow. */
#define ZYNQ_DDR_WEIGHT @weight_at@u
#define ZYNQ_DDR_FACTOR @factor_at@u
#define ZYNQ_DDR_BIAS @bias_at@u
#define ZYNQ_DDR_DATA @data_at@u
#define ZYNQ_DDR_RESULT @result_at@u
#define ZYNQ_DDR_BYTES @bytes@u

/* Access to the engine. `move` copies a block from DDR to a store, or with `write` from the store to DDR. On a board,
   implement `read` and `write` as accesses to the engine's AXI slave, and `move` as a DMA transfer that cleans or
   invalidates the caches. */
typedef struct {
  uint32_t (*read)(uint32_t offset);
  void (*write)(uint32_t offset, uint32_t value);
  void (*move)(uint32_t store, uint32_t write, uint8_t *ddr, uint32_t bytes);
} zynq_port;

/* Sizes of a layer's input and output: codes of one tensor, channels last. */
uint32_t zynq_input_bytes(uint32_t layer);
uint32_t zynq_output_bytes(uint32_t layer);

/* Runs one layer. Returns the number of page services, or -1 if there is no such layer. */
int64_t zynq_run_layer(const zynq_port *port, uint8_t *ddr, uint32_t layer, const uint8_t *input, uint8_t *output);

/* Runs all layers; `scratch` must hold the largest tensor between two layers. Returns the number of page services, or
   -1 if the layers are not a chain (ZYNQ_CHAIN is 0). */
int64_t zynq_run(const zynq_port *port, uint8_t *ddr, const uint8_t *input, uint8_t *output, uint8_t *scratch);

#endif
