// Runs a program of RoCC commands on the generated module Gemmini: harness INPUT OUTPUT.
//
// INPUT: int64 commands, base, bytes, latency, limit; then the commands (funct, rs1, rs2) and the memory. OUTPUT: int64
// cycles (-1: not idle before the limit), then the memory. Funct 127 is a fence of the host. The memory takes a request
// a cycle and answers in order, a beat a cycle, the first one `latency` cycles after the request.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <vector>

#include "VGemmini.h"
#include "verilated.h"

constexpr int BEAT = 16, FENCE = 127, GET = 4, IDLE_CYCLES = 400;

struct Answer {
    int64_t due;
    int beats, opcode, size, source, sent;
    std::vector<uint8_t> data;
};

int main(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    FILE* file = fopen(argv[1], "rb");
    int64_t head[5];
    if (!file || fread(head, 8, 5, file) != 5) return 2;
    const int64_t commands = head[0], bytes = head[2], latency = head[3], limit = head[4];
    const uint64_t base = head[1];
    std::vector<uint64_t> words(3 * commands);
    std::vector<uint8_t> memory(bytes);
    if (fread(words.data(), 8, words.size(), file) != words.size()) return 2;
    if (fread(memory.data(), 1, bytes, file) != size_t(bytes)) return 2;
    fclose(file);

    VGemmini top;
    auto half = [&](int clock) { top.clock = clock; top.eval(); };
    top.io_resp_ready = top.auto_spad_id_out_a_ready = 1;
    top.io_cmd_bits_status_dprv = top.io_cmd_bits_status_prv = 3;  // machine mode: addresses are physical
    top.io_cmd_bits_inst_opcode = 0x7b;
    for (int cycle = 0; cycle < 40; cycle++) {
        top.reset = cycle < 20;
        half(0), half(1);
    }

    std::deque<Answer> answers;
    int64_t first = -1, last_busy = 0, next = 0, cycle = 0;
    int put_beat = 0;
    for (int idle = 0; cycle < limit && idle < IDLE_CYCLES; cycle++) {
        const bool fence = next < commands && words[3 * next] == FENCE;
        top.io_cmd_valid = next < commands && !fence;
        if (top.io_cmd_valid) {
            top.io_cmd_bits_inst_funct = words[3 * next];
            top.io_cmd_bits_rs1 = words[3 * next + 1], top.io_cmd_bits_rs2 = words[3 * next + 2];
        }
        const bool answered = !answers.empty() && answers.front().due <= cycle;
        top.auto_spad_id_out_d_valid = answered;
        if (answered) {
            const Answer& answer = answers.front();
            top.auto_spad_id_out_d_bits_opcode = answer.opcode;
            top.auto_spad_id_out_d_bits_size = answer.size;
            top.auto_spad_id_out_d_bits_source = answer.source;
            if (!answer.data.empty())
                memcpy(&top.auto_spad_id_out_d_bits_data[0], &answer.data[BEAT * answer.sent], BEAT);
        }
        half(0);
        const bool busy = top.io_busy;
        if (busy) last_busy = cycle;
        if (next < commands && (fence ? !busy : bool(top.io_cmd_ready))) {
            if (first < 0) first = cycle;
            next++;
        }
        if (top.auto_spad_id_out_a_valid) {
            const int size = top.auto_spad_id_out_a_bits_size, length = 1 << size;
            const int beats = length > BEAT ? length / BEAT : 1;
            const uint64_t start = (top.auto_spad_id_out_a_bits_address & ~uint64_t(BEAT - 1)) - base;
            Answer answer = {cycle + latency, beats, 1, size, int(top.auto_spad_id_out_a_bits_source), 0, {}};
            if (top.auto_spad_id_out_a_bits_opcode == GET) {
                answer.data.resize(BEAT * beats);
                for (int i = 0; i < BEAT * beats; i++)
                    if (start + i < uint64_t(bytes)) answer.data[i] = memory[start + i];
                answers.push_back(answer);
            } else {
                uint8_t data[BEAT];
                memcpy(data, &top.auto_spad_id_out_a_bits_data[0], BEAT);
                for (int i = 0; i < BEAT; i++) {
                    const uint64_t at = start + BEAT * put_beat + i;
                    if (top.auto_spad_id_out_a_bits_mask >> i & 1 && at < uint64_t(bytes)) memory[at] = data[i];
                }
                if (++put_beat == beats) {
                    put_beat = 0, answer.beats = 1, answer.opcode = 0;
                    answers.push_back(answer);
                }
            }
        }
        if (answered && top.auto_spad_id_out_d_ready && ++answers.front().sent == answers.front().beats)
            answers.pop_front();
        half(1);
        idle = next == commands && !busy ? idle + 1 : 0;
    }
    file = fopen(argv[2], "wb");
    const int64_t cycles = cycle < limit ? last_busy + 1 - first : -1;
    fwrite(&cycles, 8, 1, file);
    fwrite(memory.data(), 1, bytes, file);
    fclose(file);
    return 0;
}
