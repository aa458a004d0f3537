// Devices of the simulated LiteX system. Addresses with bit 31 set are uncached.
#pragma once
#include <stdint.h>

#include "cfu_machine.h"

#define UART_TX (*(volatile uint32_t *)CFU_UART)
#define REGION (*(volatile uint32_t *)CFU_REGION)  // store operator index + 1 to begin its region, 0 to end it

static inline void print(const char *text) {
  while (*text) UART_TX = (uint8_t)*text++;
}
