/* Strides and layouts: a tensor in other places, and the strides of each layout of local memory. */
#include "tpu_kernel.h"

#include "device.h"

/* Element (n, c, h, w) of x, which has no gaps, goes to y + n * stride.n + c * stride.c + h * stride.h + w * stride.w. */
void strided(const void *args) {
    const param_strides *p = (const param_strides *)args;
    const dim4 shape = {p->n, p->c, p->h, p->w}, stride = {p->ns, p->cs, p->hs, p->ws};
    tpu_initialize();
    tpu_gdma_cpy_S2S(p->y, p->x, &shape, &stride, NULL, DT_INT8);
    tpu_poll();
}
TPUKERNEL_FUNC_REGISTER(strided)

static void show(const char *name, dim4 stride) {
    TPUKERNEL_LOG("%-10s N %d, C %d, H %d, W %d\n", name, stride.n, stride.c, stride.h, stride.w);
}

/* Print the strides of a tensor in each layout. */
void layouts(const void *args) {
    const param_layout *p = (const param_layout *)args;
    const data_type_t dtype = (data_type_t)p->dtype;
    const dim4 shape = {p->n, p->c, p->h, p->w};
    dim4 stride;
    TPUKERNEL_LOG(
        "(%d, %d, %d, %d) from lane %d of %d: %d channels in a lane\n", shape.n, shape.c, shape.h, shape.w, p->start,
        NPU_NUM, tpu_channle_num_per_npu(p->start, shape.c));
    tpu_continuous_stride(&stride, &shape);
    show("continuous", stride);
    tpu_aligned_stride(&stride, p->start, &shape, dtype);
    show("aligned", stride);
    tpu_compact_stride(&stride, p->start, &shape);
    show("compact", stride);
    tpu_line_aligned_stride(&stride, p->start, &shape, dtype);
    show("line", stride);
}
TPUKERNEL_FUNC_REGISTER(layouts)

/* Print the tensor of a matrix with `width` columns per channel, for several widths; a vector is a matrix of one row. */
void matrices(const void *args) {
    const param_layout *p = (const param_layout *)args;
    const int rows = p->n, columns = p->c, widths[] = {columns, 20, 15, 8, 6};
    for (int i = 0; i < 5; i++) {
        const dim4 shape = {rows, DIV_UP(columns, widths[i]), 1, widths[i]};
        dim4 stride;
        tpu_aligned_stride(&stride, p->start, &shape, (data_type_t)p->dtype);
        TPUKERNEL_LOG("%d x %d, w = %d: shape (%d, %d, 1, %d), ", rows, columns, widths[i], shape.n, shape.c, shape.w);
        show("strides", stride);
    }
}
TPUKERNEL_FUNC_REGISTER(matrices)

/* Print the strides of convolution kernels: 8-bit types store 64 input channels side by side, 16-bit types store 32. */
void kernels(const void *args) {
    const param_layout *p = (const param_layout *)args;
    const int inner = tpu_data_type_size((data_type_t)p->dtype) == 1 ? 64 : 32;
    const int ic = p->c, kh = p->h, kw = p->w;
    const int channel = inner * kw * kh * DIV_UP(ic, inner);
    const dim4 stride = {channel, channel, inner * kw, inner};
    TPUKERNEL_LOG("%d input channels, %d x %d: ", ic, kh, kw);
    show(inner == 64 ? "64IC" : "32IC", stride);
}
TPUKERNEL_FUNC_REGISTER(kernels)
