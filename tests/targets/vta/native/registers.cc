// A product of one tile through the registers of upstream's HLS build (examples/vta_c/hls_registers.cc): each memory
// begins at its own register. Then the same without the token of the LOADs, which never ends.

#include <vta/driver.h>
#include <vta/hw_spec.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

extern "C" {
uint32_t cma_get_phy_addr(void* buf);
void* VTAMapRegister(uint32_t addr);
void VTAUnmapRegister(void* vta);
void VTAWriteMappedReg(void* base_addr, uint32_t offset, uint32_t val);
uint32_t VTAReadMappedReg(void* base_addr, uint32_t offset);
}

namespace {

const unsigned kTile = VTA_BLOCK_OUT;

template <typename T>
T* Shared(size_t count) {
  return static_cast<T*>(VTAMemAlloc(count * sizeof(T), VTA_CACHED));
}

// LOAD or STORE tile 1 of a buffer, so that neither the register nor the field is 0.
VTAInsn Transfer(unsigned opcode, unsigned memory) {
  VTAInsn insn;
  std::memset(&insn, 0, sizeof(insn));
  insn.mem.opcode = opcode;
  insn.mem.memory_type = memory;
  insn.mem.dram_base = insn.mem.y_size = insn.mem.x_size = insn.mem.x_stride = 1;
  return insn;
}

bool Run(void* const handles[4], VTAInsn* code, uint32_t count) {
  void* fetch = handles[0];
  VTAWriteMappedReg(fetch, VTA_FETCH_INSN_COUNT_OFFSET, count);
  VTAWriteMappedReg(fetch, VTA_FETCH_INSN_ADDR_OFFSET, cma_get_phy_addr(code));
  for (int block = 0; block < 4; ++block) VTAWriteMappedReg(handles[block], 0, 1);
  return VTAReadMappedReg(handles[2], VTA_COMPUTE_DONE_RD_OFFSET);
}

}  // namespace

int main() {
  VTAUop* uops = Shared<VTAUop>(2);
  int8_t* inputs = Shared<int8_t>(2 * kTile);
  int8_t* weights = Shared<int8_t>(2 * kTile * kTile);
  int32_t* biases = Shared<int32_t>(2 * kTile);
  int8_t* outputs = Shared<int8_t>(2 * kTile);
  std::memset(uops, 0, 2 * sizeof(VTAUop));
  for (unsigned i = 0; i < 2 * kTile; ++i) inputs[i] = i % 5, biases[i] = i;
  for (unsigned i = 0; i < 2 * kTile * kTile; ++i) weights[i] = i % 3 - 1;

  void* const handles[] = {VTAMapRegister(VTA_FETCH_ADDR), VTAMapRegister(VTA_LOAD_ADDR),
                           VTAMapRegister(VTA_COMPUTE_ADDR), VTAMapRegister(VTA_STORE_ADDR)};
  VTAWriteMappedReg(handles[1], VTA_LOAD_INP_ADDR_OFFSET, cma_get_phy_addr(inputs));
  VTAWriteMappedReg(handles[1], VTA_LOAD_WGT_ADDR_OFFSET, cma_get_phy_addr(weights));
  VTAWriteMappedReg(handles[2], VTA_COMPUTE_UOP_ADDR_OFFSET, cma_get_phy_addr(uops));
  VTAWriteMappedReg(handles[2], VTA_COMPUTE_BIAS_ADDR_OFFSET, cma_get_phy_addr(biases));
  VTAWriteMappedReg(handles[3], VTA_STORE_OUT_ADDR_OFFSET, cma_get_phy_addr(outputs));

  VTAInsn* code = Shared<VTAInsn>(7);
  std::memset(code, 0, 7 * sizeof(VTAInsn));
  code[0] = Transfer(VTA_OPCODE_LOAD, VTA_MEM_ID_UOP);
  code[1] = Transfer(VTA_OPCODE_LOAD, VTA_MEM_ID_ACC);
  code[2] = Transfer(VTA_OPCODE_LOAD, VTA_MEM_ID_WGT);
  code[3] = Transfer(VTA_OPCODE_LOAD, VTA_MEM_ID_INP);
  code[3].mem.push_next_dep = 1;
  code[4].gemm.opcode = VTA_OPCODE_GEMM;
  code[4].gemm.pop_prev_dep = code[4].gemm.push_next_dep = 1;
  code[4].gemm.uop_end = code[4].gemm.iter_out = code[4].gemm.iter_in = 1;
  code[5] = Transfer(VTA_OPCODE_STORE, VTA_MEM_ID_OUT);
  code[5].mem.pop_prev_dep = code[5].mem.push_prev_dep = 1;
  code[6].gemm.opcode = VTA_OPCODE_FINISH;
  code[6].gemm.pop_next_dep = 1;
  bool right = Run(handles, code, 7);
  for (unsigned n = 0; n < kTile; ++n) {
    int32_t sum = biases[kTile + n];
    for (unsigned k = 0; k < kTile; ++k) sum += inputs[kTile + k] * weights[(kTile + n) * kTile + k];
    right = right && outputs[kTile + n] == static_cast<int8_t>(sum) && outputs[n] == 0;
  }
  right = right && code[3].mem.dram_base == 1;  // the program's own instructions stay as they are

  code[3].mem.push_next_dep = 0;
  right = right && !Run(handles, code, 7);
  for (void* handle : handles) VTAUnmapRegister(handle);
  return right ? 0 : 1;
}
