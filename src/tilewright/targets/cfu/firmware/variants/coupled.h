// Operators with support by extensions use the image memory; others run as published. DMA: the CFU loads weights.
#include "implicit.h"

#include "../kernels/coupled.h"
