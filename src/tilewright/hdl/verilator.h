// The engine Verilator, as harness.h and driver.h use it.
#include "Vtop.h"
#include "verilated.h"

struct Design {
    VerilatedContext context;
    Vtop *top;

    Design() {
        context.randReset(0);
        top = new Vtop(&context);
    }
    ~Design() { delete top; }
    void eval() { top->eval(); }
    bool wave(const char *) { return false; }
    void sample(uint64_t) {}
    void list(std::vector<Port> &ports);
};
