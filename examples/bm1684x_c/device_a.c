/* Device code in two files, which become one firmware: functions that a host launches by their names.
 *
 *     tilewright firmware device_a.c device_b.c -o bm1684x.bin
 */
#include "tpu_kernel.h"

#include "device.h"

/* y = x + 1 */
void func_0_0(const void *args) {
    const param_func_0 *p = (const param_func_0 *)args;
    const dim4 shape = {1, NPU_NUM, 1, p->length / NPU_NUM};
    const scalar_t one = {.f32 = 1};
    tpu_initialize();
    tpu_gdma_cpy_S2L(0, p->x, &shape, NULL, NULL, DT_FP32);
    tpu_bdc_fp_add_C(BANK_SIZE, 0, one, &shape, NULL, NULL, DT_FP32);
    tpu_gdma_cpy_L2S(p->y, BANK_SIZE, &shape, NULL, NULL, DT_FP32);
    tpu_poll();
}
TPUKERNEL_FUNC_REGISTER(func_0_0)

/* y = x * x. A function that returns int may refuse its argument: the launch then fails. */
int func_0_1(const void *args) {
    const param_func_0 *p = (const param_func_0 *)args;
    if (p->length % NPU_NUM) return 1;
    const dim4 shape = {1, NPU_NUM, 1, p->length / NPU_NUM};
    tpu_initialize();
    tpu_gdma_cpy_S2L(0, p->x, &shape, NULL, NULL, DT_FP32);
    tpu_bdc_fp_mul(BANK_SIZE, 0, 0, &shape, NULL, NULL, NULL, DT_FP32);
    tpu_gdma_cpy_L2S(p->y, BANK_SIZE, &shape, NULL, NULL, DT_FP32);
    tpu_poll();
    return 0;
}
TPUKERNEL_FUNC_REGISTER(func_0_1)
