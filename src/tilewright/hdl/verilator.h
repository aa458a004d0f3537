// Verilator's side of the driver.
#include "Vtop.h"
#include "verilated.h"
#include "verilated_syms.h"

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
    void list(std::vector<Port> &ports, std::vector<Array> &arrays);

    // A public variable: `scope` is the path of its module.
    void array(std::vector<Array> &arrays, const char *path, const char *scope, const char *name) {
        const VerilatedScope *found = context.scopeFind(scope);
        VerilatedVar *variable = found ? found->varFind(name) : nullptr;
        if (!variable) return;
        uint32_t bits = variable->packedRanges().empty() ? 1 : variable->packedRanges()[0].elements();
        uint32_t depth = variable->unpackedRanges()[0].elements();
        uint32_t bytes = bits <= 8 ? 1 : bits <= 16 ? 2 : bits <= 32 ? 4 : bits <= 64 ? 8 : (bits + 31) / 32 * 4;
        arrays.push_back({path, variable->datap(), bits, bytes, depth});
    }
};
