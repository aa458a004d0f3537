// Devices of the simulated LiteX system. Addresses with bit 31 set are uncached.
#pragma once
#include <stdint.h>

#define UART_TX (*(volatile uint32_t *)0xF0001800)
#define REGION (*(volatile uint32_t *)0xF0002004)  // operator index + 1: its region begins; 0: it ends

static inline void print(const char *text) {
  while (*text) UART_TX = (uint8_t)*text++;
}

static inline uint32_t cycles(void) {
  uint32_t value;
  __asm__ volatile("csrr %0, mcycle" : "=r"(value));
  return value;
}
