/* A matrix goes out to memory and comes in again without a fence: the load may be earlier than the store. Run it:
 *
 *     tilewright exec race.c -t gemmini
 */
#include "include/gemmini_testutils.h"

int main(void) {
    static elem_t in[DIM][DIM] row_align(4), between[DIM][DIM] row_align(4), out[DIM][DIM] row_align(4);
    for (size_t i = 0; i < DIM; i++)
        for (size_t j = 0; j < DIM; j++) in[i][j] = i + j;
    gemmini_config_ld(DIM);
    gemmini_config_st(DIM);
    gemmini_mvin(in, 0);
    gemmini_mvout(between, 0);
    gemmini_mvin(between, DIM); /* the bytes may not be there yet */
    gemmini_mvout(out, DIM);
    gemmini_fence();
    printf("%s\n", is_equal(in, out) ? "equal" : "different");
    return 0;
}
