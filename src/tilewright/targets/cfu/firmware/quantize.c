#include "quantize.h"

int32_t scale_reference(int32_t x, int32_t multiplier, int32_t shift) {
  int left = shift > 0 ? shift : 0;
  int right = shift > 0 ? 0 : -shift;
  return divide_by_pot(high_mul((int32_t)((uint32_t)x << left), multiplier), right);
}
