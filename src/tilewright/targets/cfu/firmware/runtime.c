// Functions that GCC may call implicitly: freestanding code has no C library.
#include <stddef.h>

#ifndef __clang__
#pragma GCC optimize("no-tree-loop-distribute-patterns")  // otherwise memcpy would be compiled to a call of itself
#endif

void *memcpy(void *restrict to, const void *restrict from, size_t count) {
  char *restrict out = to;
  const char *restrict in = from;
  while (count--) *out++ = *in++;
  return to;
}

void *memset(void *to, int value, size_t count) {
  char *out = to;
  while (count--) *out++ = (char)value;
  return to;
}
