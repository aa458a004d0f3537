// Operators that the extensions support run on the CFU's image memory, others as published. DMA: the CFU loads weights.
#include "implicit.h"

#include "../kernels/coupled.h"
