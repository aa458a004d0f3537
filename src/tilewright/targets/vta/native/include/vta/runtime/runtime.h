/* TVM keeps the header in this folder, older releases beside driver.h. */
#include <vta/runtime.h>
