// Plays calls of VTA's runtime that a test writes to standard input (see script.py).
#include <vta/runtime.h>

#include <iostream>
#include <map>
#include <string>
#include <vector>

struct Kernel {
  std::vector<uint32_t> loops, uops;
  uint32_t mode, reset, opcode, use_imm;
  int32_t imm;
};
static Kernel kernel;

static int Record(void*) {
  for (size_t i = 0; i < kernel.loops.size(); i += 4)
    VTAUopLoopBegin(kernel.loops[i], kernel.loops[i + 1], kernel.loops[i + 2], kernel.loops[i + 3]);
  for (size_t i = 0; i < kernel.uops.size(); i += 3)
    VTAUopPush(kernel.mode, kernel.reset, kernel.uops[i], kernel.uops[i + 1], kernel.uops[i + 2], kernel.opcode,
               kernel.use_imm, kernel.imm);
  for (size_t i = 0; i < kernel.loops.size(); i += 4) VTAUopLoopEnd();
  return 0;
}

static std::vector<uint32_t> Read(size_t count) {
  std::vector<uint32_t> found(count);
  for (auto& value : found) std::cin >> value;
  return found;
}

int main() {
  VTACommandHandle cmd = VTATLSCommandHandle();
  std::vector<void*> buffers;
  static void* kernels = nullptr;
  std::string word;
  while (std::cin >> word) {
    if (word == "buffer") {
      buffers.push_back(VTABufferAlloc(Read(1)[0]));
    } else if (word == "fill") {
      std::vector<uint32_t> a = Read(3);  // buffer, bytes, value
      std::string bytes(a[1], static_cast<char>(a[2]));
      VTABufferCopy(bytes.data(), 0, buffers[a[0]], 0, a[1], VTA_MEMCPY_H2D);
    } else if (word == "load") {
      std::vector<uint32_t> a = Read(11);
      VTALoadBuffer2D(cmd, buffers[a[0]], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
    } else if (word == "store") {
      std::vector<uint32_t> a = Read(7);
      VTAStoreBuffer2D(cmd, a[0], a[1], buffers[a[2]], a[3], a[4], a[5], a[6]);
    } else if (word == "kernel") {
      std::vector<uint32_t> a = Read(8);  // mode, reset, opcode, use_imm, imm, loops, uops, signature
      kernel = Kernel{Read(4 * a[5]), Read(3 * a[6]), a[0], a[1], a[2], a[3], static_cast<int32_t>(a[4]) - 1000};
      (a[0] ? VTAPushALUOp : VTAPushGEMMOp)(&kernels, Record, &a[7], sizeof(a[7]));
    } else if (word == "push" || word == "pop") {
      std::vector<uint32_t> a = Read(2);
      (word == "push" ? VTADepPush : VTADepPop)(cmd, a[0], a[1]);
    } else if (word == "debug") {
      VTASetDebugMode(cmd, Read(1)[0]);
    } else {
      VTASynchronize(cmd, ~0u);
    }
  }
}
