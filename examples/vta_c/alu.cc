// The tensor ALU on VTA's runtime: each operation with an immediate and with a second tile, with and without loops, as
// in upstream's tests (alu_test); then a chain of operations that rescales sums to bytes.
//
//     c++ alu.cc $(tilewright config --vta --cflags --libs) -o alu && ./alu

#include <vta/hw_spec.h>
#include <vta/runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

const int kTiles = 32;  // of each operand
const int kValues = kTiles * VTA_BATCH * VTA_BLOCK_OUT;
enum Stage { kLoad = 1, kCompute = 2, kStore = 3 };

struct Operation {
  unsigned opcode;
  bool immediate;
  int value;
  bool loops;
};

// All operations; a kernel's signature is its number here.
std::vector<Operation> operations;

// acc[i] = op(acc[i], immediate), or op(acc[i], acc[kTiles + i]).
int Record(void* signature) {
  const Operation& op = operations[*static_cast<int*>(signature)];
  const int other = op.immediate ? 0 : kTiles;
  if (op.loops) VTAUopLoopBegin(kTiles, 1, 1, 0);
  for (int i = 0; i < (op.loops ? 1 : kTiles); ++i)
    VTAUopPush(1, 0, i, other + i, 0, op.opcode, op.immediate, op.immediate ? op.value : 0);
  if (op.loops) VTAUopLoopEnd();
  return 0;
}

int32_t Apply(const Operation& op, int32_t a, int32_t b) {
  if (op.immediate) b = op.value;
  switch (op.opcode) {
    case VTA_ALU_OPCODE_MIN: return std::min(a, b);
    case VTA_ALU_OPCODE_MAX: return std::max(a, b);
    case VTA_ALU_OPCODE_ADD: return a + b;
    case VTA_ALU_OPCODE_SHR: return a >> b;
    default: return a * b;
  }
}

// Run a chain of operations on random values; returns the number of wrong results.
int Run(const char* name, const std::vector<Operation>& chain, int largest) {
  std::vector<int32_t> both(2 * kValues);
  uint32_t state = 7;
  for (int i = 0; i < 2 * kValues; ++i) {
    state = state * 1664525u + 1013904223u;
    both[i] = i < kValues ? static_cast<int32_t>(state) >> 14 : static_cast<int32_t>(state >> 16) % (largest + 1);
  }
  static void* kernels = nullptr;
  const unsigned long long before = tilewright_vta_cycles();
  VTACommandHandle cmd = VTATLSCommandHandle();
  void* operands = VTABufferAlloc(both.size() * sizeof(int32_t));
  void* out = VTABufferAlloc(kValues * VTA_OUT_WIDTH / 8);
  VTABufferCopy(both.data(), 0, operands, 0, both.size() * sizeof(int32_t), VTA_MEMCPY_H2D);
  VTALoadBuffer2D(cmd, operands, 0, 2 * kTiles, 1, 2 * kTiles, 0, 0, 0, 0, 0, VTA_MEM_ID_ACC);
  for (const Operation& op : chain) {
    int number = static_cast<int>(operations.size());
    operations.push_back(op);
    VTAPushALUOp(&kernels, Record, &number, sizeof(number));
  }
  VTADepPush(cmd, kCompute, kStore);
  VTADepPop(cmd, kCompute, kStore);
  VTAStoreBuffer2D(cmd, 0, VTA_MEM_ID_OUT, out, 0, kTiles, 1, kTiles);
  VTASynchronize(cmd, 1u << 31);
  VTAWriteBarrier(cmd, out, VTA_OUT_WIDTH, 0, kValues);
  const int8_t* found = static_cast<const int8_t*>(VTABufferCPUPtr(cmd, out));
  int errors = 0;
  for (int i = 0; i < kValues; ++i) {
    int32_t expected = both[i];
    for (const Operation& op : chain) expected = Apply(op, expected, both[kValues + i]);
    errors += found[i] != static_cast<int8_t>(expected);
  }
  std::printf("%-24s %d errors, %llu cycles\n", name, errors, tilewright_vta_cycles() - before);
  VTABufferFree(operands);
  VTABufferFree(out);
  return errors;
}

}  // namespace

int main() {
  const struct {
    const char* name;
    unsigned opcode;
    int value, largest;
  } kinds[] = {{"min", VTA_ALU_OPCODE_MIN, -5, 1000},
               {"max", VTA_ALU_OPCODE_MAX, 0, 1000},
               {"add", VTA_ALU_OPCODE_ADD, 77, 1000},
               {"shr", VTA_ALU_OPCODE_SHR, 9, 15}};
  int errors = 0;
  for (const auto& kind : kinds) {
    for (int form = 0; form < 4; ++form) {
      char name[32];
      const char *operand = form & 1 ? "tile" : "immediate", *loops = form & 2 ? ", loops" : "";
      std::snprintf(name, sizeof(name), "%s %s%s", kind.name, operand, loops);
      errors += Run(name, {{kind.opcode, !(form & 1), kind.value, (form & 2) != 0}}, kind.largest);
    }
  }
  // Add a bias, round, shift and clip.
  errors += Run("chain",
                {{VTA_ALU_OPCODE_ADD, false, 0, true},
                 {VTA_ALU_OPCODE_ADD, true, 1 << 9, true},
                 {VTA_ALU_OPCODE_SHR, true, 10, true},
                 {VTA_ALU_OPCODE_MAX, true, -128, true},
                 {VTA_ALU_OPCODE_MIN, true, 127, true}},
                1000);
  VTARuntimeShutdown();
  return errors != 0;
}
