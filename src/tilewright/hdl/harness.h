// Shared by both engines: ports, and a memory with AXI4 ports. Each engine defines `Design`, with eval() and a list of
// its ports.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

struct Port {
    std::string name;
    void *data;
    uint32_t bits, bytes;
};

static inline uint64_t get(const Port *port) {
    uint64_t value = 0;
    memcpy(&value, port->data, port->bytes < 8 ? port->bytes : 8);
    return value;
}

static inline void set(const Port *port, uint64_t value) {
    memcpy(port->data, &value, port->bytes < 8 ? port->bytes : 8);
}

// The memory of a design's address space. The first beat of a read burst comes `latency` cycles after the command, or
// after the previous burst. A write response comes `latency` cycles after the last beat. The memory is always ready.
// With stalls, these times are random within AXI's rules, and an offer of the design must not change before it is
// accepted. Ports that a design may lack: the IDs, and `r_ready` and `b_ready`, which then count as 1.
struct Memory {
    uint8_t *bytes;
    uint64_t size, latency;
    uint32_t beat;
    Port *ar_valid, *ar_ready, *ar, *r_valid, *r, *aw_valid, *aw_ready, *aw, *w_valid, *w_ready, *w, *b_valid;
    Port *r_ready, *b_ready, *ar_id, *r_id, *aw_id, *b_id;
    uint32_t length_bits;
    uint64_t faults = 0;

    struct Burst {
        uint64_t address, beats, ready, id;
    };
    std::deque<Burst> reads, writes, responses;
    bool beats = false, responds = false;  // whether a read beat or a response is offered
    uint64_t written = 0;  // number of received beats of the oldest write burst
    std::vector<uint64_t> log_places;  // for each beat written: cycle, address
    std::vector<uint8_t> log_beats;    // for each beat written: data, strobes
    std::vector<uint64_t> log_reads;   // for each read burst: cycle, address, beats
    std::vector<uint8_t> payload;
    uint64_t stalls = 0;  // state of the random generator; 0: no stalls
    std::string offered[3];  // payloads of AR, AW and W that have not been accepted

    // Whether the memory is active in this cycle: always, or with stalls in 3 of 4 cycles.
    bool happens() { return !stalls || random() % 4; }

    uint64_t random() {  // xorshift
        stalls ^= stalls << 13, stalls ^= stalls >> 7, stalls ^= stalls << 17;
        return stalls >> 8;
    }

    uint64_t delay() { return latency + (stalls && random() % 4 == 0 ? random() % 40 : 0); }

    // Whether the offer on a channel is accepted. An offer that changes before it is accepted is a fault.
    bool taken(const Port *valid, const Port *ready, const Port *port, std::string &before) {
        if (!stalls) return get(valid);
        std::string now(static_cast<const char *>(port->data), get(valid) ? port->bytes : 0);
        if (!before.empty() && now != before) faults++;
        before = get(ready) ? std::string() : now;
        return get(valid) && get(ready);
    }

    Burst command(const Port *port, const Port *id, uint64_t cycle) {
        uint64_t word = get(port);
        uint64_t beats = (word >> 32 & ((1ull << length_bits) - 1)) + 1;
        return {word & 0xffffffffull, beats, cycle + delay(), id ? get(id) : 0};
    }

    // Before the clock edge that ends `cycle`: removes what the design takes, and accepts what it offers.
    void sample(uint64_t cycle) {
        if (beats && (!r_ready || get(r_ready))) {
            beats = false, reads.front().address += beat;
            if (--reads.front().beats == 0) reads.pop_front();
        }
        if (responds && (!b_ready || get(b_ready))) responds = false, responses.pop_front();
        if (taken(ar_valid, ar_ready, ar, offered[0])) {
            Burst burst = command(ar, ar_id, cycle);
            log_reads.insert(log_reads.end(), {cycle, burst.address, burst.beats});
            reads.push_back(burst);
        }
        if (taken(aw_valid, aw_ready, aw, offered[1])) writes.push_back(command(aw, aw_id, cycle));
        if (taken(w_valid, w_ready, w, offered[2])) store(cycle);
    }

    void store(uint64_t cycle) {
        if (writes.empty()) {
            faults++;
            return;
        }
        const uint8_t *word = static_cast<const uint8_t *>(w->data);
        Burst &burst = writes.front();
        uint64_t address = burst.address + written * beat;
        log_places.push_back(cycle), log_places.push_back(address);
        log_beats.insert(log_beats.end(), word, word + beat + (beat + 7) / 8);
        for (uint32_t i = 0; i < beat; i++)
            if (word[beat + i / 8] >> i % 8 & 1) {
                if (address + i < size) bytes[address + i] = word[i];
                else faults++;
            }
        bool last = word[beat + beat / 8] >> beat % 8 & 1;
        if (last != (++written == burst.beats)) faults++;
        if (written == burst.beats) {
            responses.push_back({0, 0, cycle + delay(), burst.id});
            writes.pop_front();
            written = 0;
        }
    }

    // Sets the inputs of the design for `cycle`.
    void drive(uint64_t cycle) {
        if (stalls) {
            set(ar_ready, happens()), set(aw_ready, happens());
            set(w_ready, !writes.empty() && happens());
        }
        const bool held = beats;  // the design did not take the beat in the cycle before
        beats = beats || (!reads.empty() && reads.front().ready <= cycle && happens());
        set(r_valid, beats);
        if (beats) {
            const Burst &burst = reads.front();
            std::fill(payload.begin(), payload.end(), 0);
            if (burst.address + beat <= size) memcpy(payload.data(), bytes + burst.address, beat);
            else faults += !held;
            payload[beat] = burst.beats == 1;
            memcpy(r->data, payload.data(), r->bytes);
            if (r_id) set(r_id, burst.id);
        }
        responds = responds || (!responses.empty() && responses.front().ready <= cycle && happens());
        set(b_valid, responds);
        if (responds && b_id) set(b_id, responses.front().id);
    }
};
