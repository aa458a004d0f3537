/* The calls of the library for tests: each returns the status of its request. */
#include <stdint.h>

int adder_start(void);
int adder_add(uint32_t times, uint64_t number);
int adder_total(uint64_t *total);
int adder_refuse(uint32_t number);
int adder_end(void);
