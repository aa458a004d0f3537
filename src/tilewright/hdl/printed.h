// Included before Verilator's runtime, which calls the macro VL_PRINTF.
extern "C" int tw_printf(const char *format, ...);
#define VL_PRINTF tw_printf
