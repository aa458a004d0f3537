// What the machine's extensions take on the CFU's image memory, the rest as published. DMA: it fetches weights itself.
#include "implicit.h"

#include "../kernels/coupled.h"
