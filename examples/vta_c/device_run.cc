// A matrix product on VTA's driver alone: the program writes its instructions and micro-ops into memory of VTAMemAlloc,
// and VTADeviceRun runs them. The shape is that of upstream's HLS test (gemm_test): 4 x 64 by 64 x 64 with a bias, once
// with a micro-op for each product of tiles, once with loops.
//
//     c++ device_run.cc $(tilewright config --vta --cflags --libs) -o device_run && ./device_run

#include <vta/driver.h>
#include <vta/hw_spec.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

const int kBatch = 4 * VTA_BATCH, kIn = 4 * VTA_BLOCK_IN, kOut = 4 * VTA_BLOCK_OUT;
const int kRows = kBatch / VTA_BATCH, kDepth = kIn / VTA_BLOCK_IN, kColumns = kOut / VTA_BLOCK_OUT;  // in tiles

// Memory that the machine can read, with the tiles of a matrix: `rows` x `columns` values each.
template <typename T>
T* Tiles(const std::vector<T>& matrix, int width, int rows, int columns) {
  T* made = static_cast<T*>(VTAMemAlloc(matrix.size() * sizeof(T), VTA_CACHED));
  T* at = made;
  const int height = static_cast<int>(matrix.size()) / width;
  for (int y = 0; y < height; y += rows)
    for (int x = 0; x < width; x += columns)
      for (int row = y; row < y + rows; ++row)
        for (int column = x; column < x + columns; ++column) *at++ = matrix[row * width + column];
  VTAFlushCache(made, VTAMemGetPhyAddr(made), static_cast<int>(matrix.size() * sizeof(T)));
  return made;
}

// A LOAD or STORE of consecutive tiles.
VTAInsn Transfer(unsigned opcode, unsigned memory, void* dram, unsigned tile_bytes, unsigned tiles) {
  VTAInsn made;
  std::memset(&made, 0, sizeof(made));
  made.mem.opcode = opcode;
  made.mem.memory_type = memory;
  made.mem.dram_base = VTAMemGetPhyAddr(dram) / tile_bytes;
  made.mem.y_size = 1;
  made.mem.x_size = made.mem.x_stride = tiles;
  return made;
}

// The micro-ops of the product, and the GEMM instruction that runs them: with `loops`, an instruction's two loops stand
// for the rows and columns of the result.
std::vector<VTAUop> Product(bool loops, VTAInsn* gemm) {
  std::vector<VTAUop> uops;
  for (int m = 0; m < (loops ? 1 : kRows); ++m)
    for (int k = 0; k < kDepth; ++k)
      for (int n = 0; n < (loops ? 1 : kColumns); ++n) {
        VTAUop uop;
        uop.dst_idx = m * kColumns + n;
        uop.src_idx = m * kDepth + k;
        uop.wgt_idx = n * kDepth + k;
        uops.push_back(uop);
      }
  std::memset(gemm, 0, sizeof(*gemm));
  gemm->gemm.opcode = VTA_OPCODE_GEMM;
  gemm->gemm.uop_end = uops.size();
  gemm->gemm.iter_out = gemm->gemm.iter_in = 1;
  if (loops) {
    gemm->gemm.iter_out = kRows;
    gemm->gemm.dst_factor_out = kColumns;
    gemm->gemm.src_factor_out = kDepth;
    gemm->gemm.iter_in = kColumns;
    gemm->gemm.dst_factor_in = 1;
    gemm->gemm.wgt_factor_in = kDepth;
  }
  return uops;
}

int Test(bool loops) {
  uint32_t state = 1;
  auto next = [&state](int bits) {
    state = state * 1664525u + 1013904223u;
    return static_cast<int32_t>(state) >> (32 - bits);
  };
  std::vector<int8_t> x(kBatch * kIn), w(kOut * kIn);
  std::vector<int32_t> bias(kBatch * kOut);
  for (auto& value : x) value = static_cast<int8_t>(next(8));
  for (auto& value : w) value = static_cast<int8_t>(next(8));
  for (auto& value : bias) value = next(16);
  int8_t* inputs = Tiles(x, kIn, VTA_BATCH, VTA_BLOCK_IN);
  int8_t* weights = Tiles(w, kIn, VTA_BLOCK_OUT, VTA_BLOCK_IN);
  int32_t* biases = Tiles(bias, kOut, VTA_BATCH, VTA_BLOCK_OUT);
  int8_t* outputs = static_cast<int8_t*>(VTAMemAlloc(kBatch * kOut, VTA_CACHED));

  VTAInsn gemm;
  const std::vector<VTAUop> uops = Product(loops, &gemm);
  void* kernel = VTAMemAlloc(uops.size() * sizeof(VTAUop), VTA_CACHED);
  VTAMemCopyFromHost(kernel, uops.data(), uops.size() * sizeof(VTAUop));

  std::vector<VTAInsn> code;
  code.push_back(Transfer(VTA_OPCODE_LOAD, VTA_MEM_ID_UOP, kernel, VTA_UOP_ELEM_BYTES, uops.size()));
  code.push_back(Transfer(VTA_OPCODE_LOAD, VTA_MEM_ID_ACC, biases, VTA_ACC_ELEM_BYTES, kRows * kColumns));
  code.push_back(Transfer(VTA_OPCODE_LOAD, VTA_MEM_ID_WGT, weights, VTA_WGT_ELEM_BYTES, kColumns * kDepth));
  code.push_back(Transfer(VTA_OPCODE_LOAD, VTA_MEM_ID_INP, inputs, VTA_INP_ELEM_BYTES, kRows * kDepth));
  code.back().mem.push_next_dep = 1;  // load -> compute
  gemm.gemm.pop_prev_dep = 1;
  gemm.gemm.push_next_dep = 1;  // compute -> store
  code.push_back(gemm);
  code.push_back(Transfer(VTA_OPCODE_STORE, VTA_MEM_ID_OUT, outputs, VTA_OUT_ELEM_BYTES, kRows * kColumns));
  code.back().mem.pop_prev_dep = 1;
  code.back().mem.push_prev_dep = 1;  // store -> compute
  VTAInsn finish;
  std::memset(&finish, 0, sizeof(finish));
  finish.generic.opcode = VTA_OPCODE_FINISH;
  finish.generic.pop_next_dep = 1;
  code.push_back(finish);
  void* stream = VTAMemAlloc(code.size() * sizeof(VTAInsn), VTA_CACHED);
  VTAMemCopyFromHost(stream, code.data(), code.size() * sizeof(VTAInsn));

  const unsigned long long before = tilewright_vta_cycles();
  VTADeviceHandle device = VTADeviceAlloc();
  const int timeout = VTADeviceRun(device, VTAMemGetPhyAddr(stream), code.size(), 10000000);
  VTADeviceFree(device);
  VTAInvalidateCache(outputs, VTAMemGetPhyAddr(outputs), kBatch * kOut);
  int errors = 0;
  for (int m = 0; m < kBatch; ++m) {
    for (int n = 0; n < kOut; ++n) {
      int32_t sum = bias[m * kOut + n];
      for (int k = 0; k < kIn; ++k) sum += x[m * kIn + k] * w[n * kIn + k];
      const int tile = (m / VTA_BATCH) * kColumns + n / VTA_BLOCK_OUT;
      const int place = (tile * VTA_BATCH + m % VTA_BATCH) * VTA_BLOCK_OUT + n % VTA_BLOCK_OUT;
      errors += outputs[place] != static_cast<int8_t>(sum);
    }
  }
  std::printf("%zu micro-ops: %d errors in %d outputs, %llu cycles\n", uops.size(), errors, kBatch * kOut,
              tilewright_vta_cycles() - before);
  for (void* memory : {static_cast<void*>(inputs), static_cast<void*>(weights), static_cast<void*>(biases),
                       static_cast<void*>(outputs), kernel, stream})
    VTAMemFree(memory);
  return timeout || errors;
}

}  // namespace

int main() { return Test(false) | Test(true); }
