// The control registers of upstream's HLS build on VTADeviceRun: upstream's bare-metal test runs unchanged, on the model.
// VTA is a checkout of apache/tvm-vta:
//
//     c++ -DNO_SIM -DVTA_DEBUG=0 -DVTA_TARGET_PYNQ -DVTA_UPSTREAM_HLS_REGISTERS hls_registers.cc
//         $VTA/tests/hardware/metal_test/metal_test.cc $VTA/tests/hardware/common/test_lib.cc
//         $(tilewright config --vta --cflags --libs) -o metal_test && ./metal_test
//
// This file replaces src/pynq/pynq_driver.cc. The HLS build adds the address in a register to the addresses in LOAD and
// STORE. VTADeviceRun does not, so the instructions run from a copy with the sums.

#include <vta/driver.h>
#include <vta/hw_spec.h>

#include <cstdint>
#include <map>

namespace {

enum Block { kFetch, kLoad, kCompute, kStore, kBlocks };
uint32_t registers[kBlocks][VTA_IP_REG_MAP_RANGE / 4];
std::map<uint32_t, void*> memory;  // by physical address

// The first tile of a memory in DRAM.
uint32_t FirstTile(unsigned type) {
  switch (type) {
    case VTA_MEM_ID_UOP: return registers[kCompute][VTA_COMPUTE_UOP_ADDR_OFFSET / 4] / VTA_UOP_ELEM_BYTES;
    case VTA_MEM_ID_INP: return registers[kLoad][VTA_LOAD_INP_ADDR_OFFSET / 4] / VTA_INP_ELEM_BYTES;
    case VTA_MEM_ID_WGT: return registers[kLoad][VTA_LOAD_WGT_ADDR_OFFSET / 4] / VTA_WGT_ELEM_BYTES;
    case VTA_MEM_ID_ACC: return registers[kCompute][VTA_COMPUTE_BIAS_ADDR_OFFSET / 4] / VTA_ACC_ELEM_BYTES;
    default: return registers[kStore][VTA_STORE_OUT_ADDR_OFFSET / 4] / VTA_OUT_ELEM_BYTES;
  }
}

void Run() {
  const uint32_t count = registers[kFetch][VTA_FETCH_INSN_COUNT_OFFSET / 4];
  const size_t size = count * sizeof(VTAInsn);
  VTAInsn* code = static_cast<VTAInsn*>(VTAMemAlloc(size, VTA_CACHED));
  VTAMemCopyFromHost(code, memory.at(registers[kFetch][VTA_FETCH_INSN_ADDR_OFFSET / 4]), size);
  for (VTAInsn* insn = code; insn < code + count; ++insn)
    if (insn->mem.opcode == VTA_OPCODE_LOAD || insn->mem.opcode == VTA_OPCODE_STORE)
      insn->mem.dram_base += FirstTile(insn->mem.memory_type);
  VTADeviceHandle device = VTADeviceAlloc();
  const bool done = VTADeviceRun(device, VTAMemGetPhyAddr(code), count, UINT32_MAX) == 0;
  VTADeviceFree(device);
  VTAMemFree(code);
  registers[kCompute][VTA_COMPUTE_DONE_RD_OFFSET / 4] = done;  // else the test reports a timeout
}

}  // namespace

extern "C" {

uint32_t cma_get_phy_addr(void* buf) {
  const uint32_t address = VTAMemGetPhyAddr(buf);
  memory[address] = buf;
  return address;
}

void* VTAMapRegister(uint32_t addr) { return registers[(addr - VTA_FETCH_ADDR) / VTA_IP_REG_MAP_RANGE]; }

void VTAUnmapRegister(void*) {}

void VTAWriteMappedReg(void* base_addr, uint32_t offset, uint32_t val) {
  static_cast<uint32_t*>(base_addr)[offset / 4] = val;
  if (base_addr == registers[kStore] && offset == 0) Run();  // the store module is started last
}

uint32_t VTAReadMappedReg(void* base_addr, uint32_t offset) { return static_cast<uint32_t*>(base_addr)[offset / 4]; }

}  // extern "C"
