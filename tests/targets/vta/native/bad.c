/* A program for each mistake, by its number. */
#include <stdio.h>
#include <string.h>
#include <vta/hw_spec.h>
#include <vta/runtime.h>

static void *kernels;
static void *cmd;

static int pushes(void *which) {
    switch (*(int *)which) {
        case 0: return 1;
        case 1: break;
        case 2: VTAUopPush(0, 0, 3, 0, 0, 0, 0, 0); VTAUopPush(0, 0, 3, 0, 0, 0, 0, 0); break;
        case 3: VTAUopPush(0, 0, 1, 0, 0, 0, 0, 0); VTAUopPush(0, 1, 2, 0, 0, 0, 0, 0); break;
        case 4: VTAUopLoopBegin(2, 1, 1, 1); VTAUopPush(0, 0, 1, 0, 0, 0, 0, 0); break;
        case 5: VTAUopPush(1, 0, 1, 0, 0, VTA_ALU_OPCODE_ADD, 1, 40000); break;
        case 6: VTAUopPush(0, 0, VTA_ACC_BUFF_DEPTH, 0, 0, 0, 0, 0); break;
        case 7: VTADepPush(cmd, 1, 2); break;
        case 8: VTAUopPush(1, 0, 0, 0, 0, VTA_ALU_OPCODE_ADD, 1, 1); break; /* right */
        case 9: VTAUopLoopBegin(1, 0, 0, 0); VTAUopLoopBegin(1, 0, 0, 0); VTAUopLoopBegin(1, 0, 0, 0); break;
    }
    return 0;
}

static VTAMemInsn moves(int opcode, int memory, uint32_t address) {
    VTAMemInsn made;
    memset(&made, 0, sizeof made);
    made.opcode = opcode;
    made.memory_type = memory;
    made.dram_base = address;
    made.y_size = made.x_size = made.x_stride = 1;
    return made;
}

/* Run up to two transfers, and FINISH if there is room for it. */
static int run(VTAMemInsn first, VTAMemInsn second, int finished, uint32_t wait) {
    union VTAInsn *code = VTAMemAlloc(3 * sizeof *code, VTA_CACHED);
    code[0].mem = first;
    code[1].mem = second;
    code[2].generic.opcode = VTA_OPCODE_FINISH;
    return VTADeviceRun(VTADeviceAlloc(), VTAMemGetPhyAddr(code), finished ? 3 : 2, wait);
}

int main(int count, char **words) {
    int number = count > 1 ? atoi(words[1]) : 0;
    char bytes[64] = {0};
    uint8_t *memory = VTAMemAlloc(8192, VTA_CACHED);
    uint32_t tile = VTAMemGetPhyAddr(memory) / VTA_INP_ELEM_BYTES;
    void *buffer = VTABufferAlloc(4096);
    VTAMemInsn load = moves(VTA_OPCODE_LOAD, VTA_MEM_ID_INP, tile), other;
    memset(memory, 1, 8192);
    cmd = VTATLSCommandHandle();
    if (number >= 20 && number < 30) {
        number -= 20;
        return (number == 5 ? VTAPushALUOp : VTAPushGEMMOp)(&kernels, pushes, &number, sizeof number);
    }
    switch (number) {
        case 0: VTABufferFree(buffer); VTABufferFree(buffer); break;
        case 1: VTASetDebugMode(&number, 2); break;
        case 2: VTADeviceRun(buffer, 0, 1, 1); break;
        case 3: VTABufferCopy(bytes, 0, buffer, 4090, 64, VTA_MEMCPY_H2D); break;
        case 4: VTALoadBuffer2D(cmd, buffer, 200, 8, 8, 8, 0, 0, 0, 0, 0, VTA_MEM_ID_INP); break;
        case 5: VTALoadBuffer2D(cmd, buffer, 0, 8, 8, 8, 0, 0, 0, 0, VTA_INP_BUFF_DEPTH - 9, VTA_MEM_ID_INP); break;
        case 6: VTALoadBuffer2D(cmd, buffer, 0, 8, 8, 8, 0, 0, 0, 16, 0, VTA_MEM_ID_INP); break;
        case 7: VTALoadBuffer2D(cmd, buffer, 0, 8, 8, 8, 0, 0, 0, 0, 0, VTA_MEM_ID_OUT); break;
        case 8: VTADepPush(cmd, 1, 3); break;
        case 9: VTAUopPush(0, 0, 0, 0, 0, 0, 0, 0); break;
        case 10: VTAMemFree(memory + 4096); break;
        case 11: VTAMemGetPhyAddr(bytes); break;
        case 12: return VTAMemAlloc(1u << 31, VTA_CACHED) != NULL;
        case 13: VTAMemCopyFromHost(memory, bytes, 8193); break;
        case 14:
            VTALoadBuffer2D(cmd, buffer, 0, 8, 8, 8, 0, 0, 0, 0, 0, VTA_MEM_ID_INP);
            VTABufferFree(buffer);
            break;
        case 15: VTABufferCopy(bytes, 0, buffer, 0, 64, 0); break;
        case 40: return run(load, load, 0, 1000); /* no FINISH */
        case 41: load.pop_next_dep = 1; return run(load, load, 1, 1000); /* deadlock */
        case 42: return run(moves(VTA_OPCODE_LOAD, VTA_MEM_ID_INP, tile + 4096), load, 1, 1000);
        case 43: return run(moves(6, 0, 0), load, 1, 1000); /* unknown opcode */
        case 44: return VTADeviceRun(VTADeviceAlloc(), 1u << 30, 4, 1000);
        case 45: return run(load, load, 1, 10);
        case 46: /* STORE reads what compute writes, without a token */
            VTABufferCopy(bytes, 0, buffer, 0, 64, VTA_MEMCPY_H2D);
            VTALoadBuffer2D(cmd, buffer, 0, 1, 1, 1, 0, 0, 0, 0, 0, VTA_MEM_ID_ACC);
            number = 8;
            VTAPushALUOp(&kernels, pushes, &number, sizeof number);
            VTAStoreBuffer2D(cmd, 0, VTA_MEM_ID_OUT, buffer, 100, 1, 1, 1);
            VTASynchronize(cmd, 1u << 31);
            return 0;
        case 47: /* a buffer that nothing has written */
            VTALoadBuffer2D(cmd, buffer, 0, 1, 1, 1, 0, 0, 0, 0, 0, VTA_MEM_ID_INP);
            VTASynchronize(cmd, 1u << 31);
            return 0;
        case 48: VTADepPop(cmd, 2, 1); VTALoadBuffer2D(cmd, buffer, 0, 1, 1, 1, 0, 0, 0, 0, 0, VTA_MEM_ID_INP);
            VTASynchronize(cmd, 1u << 31); /* deadlock: the program ends */
            return 0;
        case 49: /* a transfer from one allocation into the next */
            other = moves(VTA_OPCODE_LOAD, VTA_MEM_ID_INP, tile + 511);
            other.x_size = 2;
            return run(load, other, 1, 1000);
    }
    return 0;
}
