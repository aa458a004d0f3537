/* The part of the host API that loads firmware and launches functions; bmlib_runtime.h has all of it. */
#include "bmlib_runtime.h"
