// The engine Verilator for harness.h and driver.h.
#include <atomic>
#include <cstdarg>
#include <stdexcept>
#include "verilated.h"
#ifdef TW_WAVES
#include "verilated_vcd_c.h"
#endif

// Called by Verilator's runtime (see build.py) instead of printf. The text of a design must not reach our output.
static thread_local std::string printed;
extern "C" int tw_printf(const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (printed.size() > 1 << 16) printed.erase(0, 1 << 15);
    printed += text;
    return size;
}

// Called at $finish, and if the model itself fails. Verilator's own functions end the process.
void vl_finish(const char *, int, const char *) { Verilated::threadContextp()->gotFinish(true); }
void vl_fatal(const char *file, int line, const char *, const char *message) {
    throw std::runtime_error("%Error: " + std::string(file ? file : "") + ":" + std::to_string(line) + ": " + message);
}

// Sign extensions as two shifts. Compilers combine these shifts with the surrounding code: a design with many products
// is a third faster than with Verilator's own functions. The bits of `value` above `bits` are 0, as in Verilator's
// functions.
static inline IData extend_i(int bits, IData value) { return IData(int32_t(value << (32 - bits)) >> (32 - bits)); }
static inline QData extend_q(int bits, QData value) { return QData(int64_t(value << (64 - bits)) >> (64 - bits)); }
#define VL_EXTENDS_II(to, bits, value) extend_i(bits, value)
#define VL_EXTENDS_QI(to, bits, value) QData(int64_t(int32_t(extend_i(bits, value))))
#define VL_EXTENDS_QQ(to, bits, value) extend_q(bits, value)
#define VL_MULS_III(bits, a, b) (extend_i(bits, a) * extend_i(bits, b))
#define VL_MULS_QQQ(bits, a, b) (extend_q(bits, a) * extend_q(bits, b))

// Elements of memories that may have changed: the address and the old bytes of each accessed element.
struct Journal {
    static constexpr size_t MOST = 1 << 14;
    bool on = false;
    size_t size = 0;
    uint8_t bytes[MOST];

    void note(const void *place, size_t count) {
        size_t whole = sizeof place + sizeof count + count;
        if (size + whole > MOST) {
            size = MOST + 1;  // too many elements: assume a change
            return;
        }
        memcpy(bytes + size, &place, sizeof place), memcpy(bytes + size + sizeof place, &count, sizeof count);
        memcpy(bytes + size + sizeof place + sizeof count, place, count);
        size += whole;
    }

    bool unchanged() const {
        if (size > MOST) return false;
        for (size_t at = 0; at < size;) {
            const void *place;
            size_t count;
            memcpy(&place, bytes + at, sizeof place), memcpy(&count, bytes + at + sizeof place, sizeof count);
            at += sizeof place + sizeof count;
            if (memcmp(place, bytes + at, count)) return false;
            at += count;
        }
        return true;
    }
};
static thread_local Journal journal;
static std::atomic<int> journals;  // number of active journals; while it is 0, no thread looks for its own journal

#ifdef TW_UNTRACKED
template <typename T, size_t depth>
using Tracked = VlUnpacked<T, depth>;
#else
// A memory of the design. Its elements can be accessed only by [], which records the access. Other uses do not compile.
template <typename T, size_t depth>
class Tracked {
    VlUnpacked<T, depth> array;

  public:
    T &operator[](size_t index) {
        if (VL_UNLIKELY(journals.load(std::memory_order_relaxed)) && journal.on)
            journal.note(&array[index], sizeof(T));
        return array[index];
    }
    const T &operator[](size_t index) const { return array[index]; }
    void operator&() = delete;
};
#endif

#include "Vtop__Syms.h"
void Vtop___024root___eval(Vtop___024root *root);

// The seed for uninitialised values in designs that are made later; 0: all values are 0.
static uint64_t initial_seed = 0;
extern "C" void tw_seed(uint64_t seed) { initial_seed = seed; }

struct Design {
    struct Span {
        uint8_t *first;
        size_t size;
    };
    VerilatedContext context;
    Vtop *top;
    std::vector<Span> memories;  // tracked
    std::vector<Span> spans;     // all other state
    std::vector<uint8_t> before;

    Design() {
        static const char *name = "tilewright";
        context.commandArgs(1, &name);  // for designs that use $test$plusargs
        context.fatalOnError(false);
        context.randReset(initial_seed ? 2 : 0);
        if (initial_seed) context.randSeed(initial_seed);
#ifdef TW_WAVES
        context.traceEverOn(true);
#endif
        top = new Vtop(&context);
    }
    ~Design() {
#ifdef TW_WAVES
        if (writer.isOpen()) writer.close();
#endif
        delete top;
    }
#ifdef TW_SELF_CONTAINED
    // Leaves out Verilator's work around an evaluation, which only serves objects, events and messages. The design has
    // none.
    void evaluate() { VL_LIKELY(top->rootp->vlSymsp->__Vm_didInit) ? Vtop___024root___eval(top->rootp) : top->eval(); }
#else
    void evaluate() { top->eval(); }
#endif
    void eval() {
        try {
            evaluate();
        } catch (const std::runtime_error &error) {
            printed += error.what();
            context.gotError(true);
        }
    }
    bool stopped() const { return context.gotError() || context.gotFinish(); }
#ifdef TW_WAVES
    VerilatedVcdC writer;
    bool wave(const char *path) {
        top->trace(&writer, 99);
        writer.set_time_unit("1ns"), writer.set_time_resolution("1ns");
        writer.open(path);
        return writer.isOpen();
    }
    void sample(uint64_t time) { writer.dump(time), writer.flush(); }
#else
    bool wave(const char *) { return false; }
    void sample(uint64_t) {}
#endif
    void list(std::vector<Port> &ports);
    void list_memories();

    // After an evaluation with the clock at 1: sets the clock to 0, so that the next evaluation with 1 is a rising edge
    // again.
    void fall() {
        top->clk = 0;
#ifdef TW_EDGE
        top->rootp->TW_EDGE = 0;  // the design uses only rising edges of the clock
#else
        eval();
#endif
    }

    // Saves the whole state for `unchanged`.
    void remember() {
        if (spans.empty()) find();
        size_t at = 0;
        for (const Span &span : spans) memcpy(before.data() + at, span.first, span.size), at += span.size;
        journal.size = 0, journal.on = true, journals++;
    }

    // Whether the state equals the saved state.
    bool unchanged() {
        journal.on = false, journals--;
        size_t at = 0;
        for (const Span &span : spans) {
            if (memcmp(before.data() + at, span.first, span.size)) return false;
            at += span.size;
        }
        return journal.unchanged();
    }

  private:
    void find() {
        list_memories();
        std::sort(memories.begin(), memories.end(), [](const Span &a, const Span &b) { return a.first < b.first; });
        uint8_t *at = reinterpret_cast<uint8_t *>(top->rootp->vlSymsp), *end = at + sizeof(Vtop__Syms);
        for (const Span &memory : memories) {
            spans.push_back({at, size_t(memory.first - at)});
            at = memory.first + memory.size;
        }
        spans.push_back({at, size_t(end - at)});
        size_t size = 0;
        for (const Span &span : spans) size += span.size;
        before.resize(size);
    }
};
