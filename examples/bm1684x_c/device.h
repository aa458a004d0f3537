/* The arguments of functions, for device and host. Both pack them in the same way. */
#ifndef DEVICE_H
#define DEVICE_H

typedef struct {
    unsigned long long y, x; /* bus addresses in device memory */
    int length;              /* floats */
} __attribute__((packed)) param_func_0;

typedef struct {
    unsigned long long y, x;
    int n, c, h, w;     /* the shape */
    int ns, cs, hs, ws; /* the strides of y, in elements */
} __attribute__((packed)) param_strides;

typedef struct {
    int n, c, h, w;
    int start; /* the lane of channel 0 */
    int dtype;
} __attribute__((packed)) param_layout;

#endif
