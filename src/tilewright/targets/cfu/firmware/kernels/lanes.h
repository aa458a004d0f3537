// Push rows of A and B to the CFU in its format: LANES elements, four per word, the first in the most significant byte.
// `place` is the address of the next word, for machines that do not count addresses themselves.
#pragma once
#include "../quantize.h"

#define LANES CFU_ARRAY

#if CFU_TRANSFER_ADDRESSED
#define SET_ONE(set, word) set(place++, word)
#define SET_TWO(set, first, second) \
  do {                              \
    set(place++, first);            \
    set(place++, second);           \
  } while (0)
#else
#define SET_ONE(set, word) ((void)place, set(0, word))
#define SET_TWO(set, first, second) ((void)place, set(first, second))
#endif

// A row whose words are word(0), word(1), ...
#if LANES == 4
#define PUSH_WORDS(set, word) SET_ONE(set, word(0))
#else
#define PUSH_WORDS(set, word)                                                          \
  do {                                                                                 \
    _Pragma("GCC unroll 4") for (int at_word = 0; at_word < LANES / 4; at_word += 2) { \
      SET_TWO(set, word(at_word), word(at_word + 1));                                  \
    }                                                                                  \
  } while (0)
#endif

typedef int32_t __attribute__((may_alias)) any_word;

// A row of elements (k, at), (k, at + 1), ... The bytes of a word go through memory, as in the document, or with
// PACK_BITS through shifts.
#if PACK_BITS
#define BYTE(element, k, at, place) ((uint32_t)(uint8_t)element(k, at) << (place))
#define FOUR(element, k, at)                                                                  \
  ((int32_t)(BYTE(element, k, at, 24) | BYTE(element, k, (at) + 1, 16) | BYTE(element, k, (at) + 2, 8) | \
             BYTE(element, k, (at) + 3, 0)))
#define PUSH_EIGHT(set, element, k, at) SET_TWO(set, FOUR(element, k, at), FOUR(element, k, (at) + 4))
#define PUSH_FOUR(set, element, k, at) SET_ONE(set, FOUR(element, k, at))
#else
#if PACK_IN_MEMORY  // clang turns byte arrays into shifts, unless it must not
#define STORED(bytes) __asm__("" : "+m"(bytes))
#else
#define STORED(bytes) (void)0
#endif
#define FOUR_BYTES(element, k, at) {element(k, (at) + 3), element(k, (at) + 2), element(k, (at) + 1), element(k, at)}
#define PUSH_EIGHT(set, element, k, at)                       \
  do {                                                        \
    int8_t lower[4] = FOUR_BYTES(element, k, (at) + 4);       \
    int8_t upper[4] = FOUR_BYTES(element, k, at);             \
    STORED(lower);                                            \
    STORED(upper);                                            \
    SET_TWO(set, *(any_word *)upper, *(any_word *)lower);     \
  } while (0)
#define PUSH_FOUR(set, element, k, at)             \
  do {                                             \
    int8_t four[4] = FOUR_BYTES(element, k, at);   \
    STORED(four);                                  \
    SET_ONE(set, *(any_word *)four);               \
  } while (0)
#endif
#define PUSH_SIXTEEN(set, element, k, at)     \
  do {                                        \
    PUSH_EIGHT(set, element, k, at);          \
    PUSH_EIGHT(set, element, k, (at) + 8);    \
  } while (0)

#if LANES == 4
#define PUSH PUSH_FOUR
#elif LANES == 8
#define PUSH PUSH_EIGHT
#elif LANES == 16
#define PUSH PUSH_SIXTEEN
#else
#define PUSH(set, element, k, at)               \
  do {                                          \
    PUSH_SIXTEEN(set, element, k, at);          \
    PUSH_SIXTEEN(set, element, k, (at) + 16);   \
  } while (0)
#endif
