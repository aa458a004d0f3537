/* PS driver of the VGG16 engine. Written by tilewright; do not edit. */
#include "zynq_driver.h"

#include <string.h>

#include "zynq_engine.h"

typedef struct {
  uint32_t descriptor[@words@];
  uint32_t kind, rows, cols, ic, oc; /* for FC: 1, 1, R, L */
  uint32_t blocks, step;             /* data blocks that start on a row, output rows served by each */
  uint32_t weight_base, bias_base;   /* in blocks */
  uint32_t factor, factors;
  uint32_t pixel, zero;   /* bytes of a pixel in a data block, of which those without a channel hold `zero` */
  uint32_t together;      /* channels whose results come together, position group by position group */
  uint32_t job, jobs;     /* two frames: the first of the layer's pages, and their number */
} zynq_layer;

static const zynq_layer layers[ZYNQ_LAYERS] = {
@layers@
};

#if ZYNQ_FRAMES == 2
/* The pages in the order in which they must be moved: store + 4 * block. */
static const uint32_t jobs[] = {@jobs@};
#endif

static const uint32_t block_bytes[4] = {
    ZYNQ_DATA_BLOCK_WORDS,
    ZYNQ_WEIGHT_BLOCK_WORDS,
    4u * ZYNQ_BIAS_BLOCK_WORDS,
    ZYNQ_RESULT_BLOCK_WORDS,
};

/* Returns the address in DDR of block `block` of a store, counted from the first block of the layer. */
static uint8_t *address(uint8_t *ddr, const zynq_layer *layer, uint32_t store, uint32_t block) {
  static const uint32_t area[4] = {ZYNQ_DDR_DATA, ZYNQ_DDR_WEIGHT, ZYNQ_DDR_BIAS, ZYNQ_DDR_RESULT};
  uint32_t base = 0;
  if (store == ZYNQ_STORE_WEIGHT) base = layer->weight_base;
  if (store == ZYNQ_STORE_BIAS) base = layer->bias_base;
  return ddr + area[store] + (size_t)(base + block) * block_bytes[store];
}

uint32_t zynq_input_bytes(uint32_t layer) {
  return layer < ZYNQ_LAYERS ? layers[layer].rows * layers[layer].cols * layers[layer].ic : 0;
}

uint32_t zynq_output_bytes(uint32_t layer) {
  if (layer >= ZYNQ_LAYERS) return 0;
  const zynq_layer *it = &layers[layer];
  if (it->kind == ZYNQ_KIND_POOL) return it->rows * it->cols * it->ic / 4;
  return it->rows * it->cols * it->oc;
}

/* Writes `count` pixels. */
static void pixels(uint8_t *data, const zynq_layer *layer, const uint8_t *codes, uint32_t count) {
  for (uint32_t p = 0; p < count; p++, codes += layer->ic, data += layer->pixel) {
    memcpy(data, codes, layer->ic);
    memset(data + layer->ic, (int)layer->zero, layer->pixel - layer->ic);
  }
}

/* Writes a vector, the operands of each iteration to a line of their own. */
static void vector_lines(uint8_t *data, const zynq_layer *layer, const uint8_t *codes) {
  for (uint32_t first = 0; first < layer->ic; first += ZYNQ_LANES, data += ZYNQ_DATA_LINE) {
    uint32_t count = layer->ic - first < ZYNQ_LANES ? layer->ic - first : ZYNQ_LANES;
    memcpy(data, codes + first, count);
    memset(data + count, (int)layer->zero, ZYNQ_LANES - count);
  }
}

/* Writes codes to DDR in the order in which the loader reads them. */
static void lay_out(uint8_t *ddr, const zynq_layer *layer, const uint8_t *codes) {
  uint8_t *data = ddr + ZYNQ_DDR_DATA;
  int planes = layer->kind == ZYNQ_KIND_POOL || ZYNQ_LAYOUT == ZYNQ_LAYOUT_CHW;
  if (layer->kind == ZYNQ_KIND_FC) planes = 0;
  if (planes) {
    for (uint32_t c = 0; c < layer->ic; c++)
      for (uint32_t p = 0; p < layer->rows * layer->cols; p++) *data++ = codes[p * layer->ic + c];
  } else if (ZYNQ_WINDOW && layer->kind == ZYNQ_KIND_FC) {
    vector_lines(data, layer, codes);
  } else if (layer->blocks == 1) {
    pixels(data, layer, codes, layer->rows * layer->cols);
  } else {
    for (uint32_t block = 0; block < layer->blocks; block++)
      for (uint32_t row = 0; row < layer->step + 2; row++) {
        uint32_t y = block * layer->step + row; /* input row + 1: row 0 of block 0 is padding */
        if (y < 1 || y > layer->rows) continue;
        uint8_t *to = data + (size_t)block * ZYNQ_DATA_BLOCK_WORDS + (size_t)row * layer->cols * layer->pixel;
        pixels(to, layer, codes + (size_t)(y - 1) * layer->cols * layer->ic, layer->cols);
      }
  }
}

/* Results come channel by channel, or with oc_blocking position group by position group for the channels of a weight
   block. The next layer needs all channels of a position together. */
static void collect(const uint8_t *ddr, uint32_t index, uint8_t *codes) {
  const zynq_layer *layer = &layers[index];
  const uint8_t *results = ddr + ZYNQ_DDR_RESULT;
  uint32_t channels = layer->kind == ZYNQ_KIND_POOL ? layer->ic : layer->oc;
  uint32_t positions = zynq_output_bytes(index) / channels;
  uint32_t in_block = layer->step * layer->cols; /* a position group lies in the rows of one data block */
  for (uint32_t top = 0; top < channels; top += layer->together) {
    uint32_t end = channels - top < layer->together ? channels : top + layer->together;
    for (uint32_t first = 0, next; first < positions; first = next) {
      next = first + ZYNQ_OUTPUTS;
      if (next > (first / in_block + 1) * in_block) next = (first / in_block + 1) * in_block;
      if (next > positions) next = positions;
      for (uint32_t c = top; c < end; c++)
        for (uint32_t p = first; p < next; p++) codes[p * channels + c] = *results++;
    }
  }
}

static void start(const zynq_port *port, uint8_t *ddr, const zynq_layer *layer) {
  for (uint32_t i = 0; i < layer->factors; i++) {
    uint32_t words[2];
    memcpy(words, ddr + ZYNQ_DDR_FACTOR + 8u * (size_t)(layer->factor + i), 8);
    port->write(ZYNQ_REG_FACTOR + 8 * i, words[0]);
    port->write(ZYNQ_REG_FACTOR + 8 * i + 4, words[1]);
  }
  for (uint32_t i = 0; i < @words@; i++) port->write(ZYNQ_REG_DESCRIPTOR + 4 * i, layer->descriptor[i]);
  port->write(ZYNQ_REG_CONTROL, 1);
}

/* Moves a block between DDR and a store, and tells the engine. */
static void serve(const zynq_port *port, uint8_t *ddr, const zynq_layer *layer, uint32_t store, uint32_t block) {
  port->move(store, store == ZYNQ_STORE_RESULT, address(ddr, layer, store, block), block_bytes[store]);
  port->write(ZYNQ_REG_DONE, store);
}

/* Serves the pages of a layer until it ends; returns their number. */
#if ZYNQ_FRAMES == 2
static int64_t serve_all(const zynq_port *port, uint8_t *ddr, const zynq_layer *layer) {
  for (uint32_t i = 0; i < layer->jobs; i++) {
    uint32_t store = jobs[layer->job + i] & 3, block = jobs[layer->job + i] >> 2;
    port->write(ZYNQ_REG_JOB, store);
    while (!(port->read(ZYNQ_REG_STATUS) & ZYNQ_STATUS_READY)) {
    }
    serve(port, ddr, layer, store, block);
  }
  while (!(port->read(ZYNQ_REG_STATUS) & ZYNQ_STATUS_IDLE)) {
  }
  return layer->jobs;
}
#else
static int64_t serve_all(const zynq_port *port, uint8_t *ddr, const zynq_layer *layer) {
  for (int64_t services = 0;;) {
    uint32_t status = port->read(ZYNQ_REG_STATUS);
    if (status & ZYNQ_STATUS_WAITING) {
      serve(port, ddr, layer, (status >> ZYNQ_STATUS_STORE_SHIFT) & 3, port->read(ZYNQ_REG_BLOCK));
      services++;
    } else if (status & ZYNQ_STATUS_IDLE) {
      return services;
    }
  }
}
#endif

int64_t zynq_run_layer(const zynq_port *port, uint8_t *ddr, uint32_t index, const uint8_t *input, uint8_t *output) {
  if (index >= ZYNQ_LAYERS) return -1;
  const zynq_layer *layer = &layers[index];
  lay_out(ddr, layer, input);
  start(port, ddr, layer);
  int64_t services = serve_all(port, ddr, layer);
  collect(ddr, index, output);
  return services;
}

int64_t zynq_run(const zynq_port *port, uint8_t *ddr, const uint8_t *input, uint8_t *output, uint8_t *scratch) {
  int64_t services = 0;
  if (!ZYNQ_CHAIN) return -1;
  for (uint32_t index = 0; index < ZYNQ_LAYERS; index++) {
    uint8_t *to = index + 1 < ZYNQ_LAYERS ? scratch : output;
    services += zynq_run_layer(port, ddr, index, index ? scratch : input, to);
  }
  return services;
}
