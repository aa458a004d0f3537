/* What the recorded functions need of the recorder. Not for kernels. */
#ifndef TW_RECORDER_H
#define TW_RECORDER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tpu_defs.h"

/* Begin the record of function `number` and return where its `size` bytes of arguments go. */
unsigned char *tw_record(unsigned number, unsigned size);
void tw_recorded(void); /* the arguments are there */

extern const int tw_largest, tw_widest; /* limits: the size of an axis; bytes between the elements of a row */

/* Append one argument. A pointer to a struct of ints is a flag (0: NULL) and the ints. */
#define TW_PUT(at, value) (memcpy(at, &(value), sizeof(value)), (at) += sizeof(value))
#define TW_PUT_ENUM(at, value) do { int32_t tw_int = (int32_t)(value); TW_PUT(at, tw_int); } while (0)
#define TW_PUT_POINTER(at, pointer)                                    \
    do {                                                               \
        *(at)++ = (pointer) != NULL;                                   \
        if (pointer) memcpy(at, pointer, sizeof(*(pointer)));          \
        else memset(at, 0, sizeof(*(pointer)));                        \
        (at) += sizeof(*(pointer));                                    \
    } while (0)

#endif
