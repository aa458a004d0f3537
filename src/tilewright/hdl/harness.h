// What both engines share: the clock, a log of events, and a memory behind AXI4 ports.
// An engine gives `Design` with eval(), and fills `ports`.
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

// Bytes of a design's address space, `latency` cycles away: each read burst's first beat comes so many cycles after
// its command, or behind the burst before it; a write's response so many after its last beat. Always ready, unless it
// stalls: then all of these are random, as AXI allows, and what the design offers must stay until it is taken.
struct Memory {
    uint8_t *bytes;
    uint64_t size, latency;
    uint32_t beat;
    Port *ar_valid, *ar_ready, *ar, *r_valid, *r, *aw_valid, *aw_ready, *aw, *w_valid, *w_ready, *w, *b_valid;
    uint32_t length_bits;
    uint64_t faults = 0;

    struct Burst {
        uint64_t address, beats, ready;
    };
    std::deque<Burst> reads, writes;
    std::deque<uint64_t> responses;
    uint64_t written = 0;  // beats of the first write
    std::vector<uint64_t> log_places;  // of all beats written: cycle, address
    std::vector<uint8_t> log_beats;    // and data, strobes
    std::vector<uint8_t> payload;
    uint64_t stalls = 0;  // the state of the random numbers; 0: never
    std::string offered[3];  // what has not been taken

    // Of a few cycles, whether this is one of those in which something happens.
    bool happens() { return !stalls || random() % 4; }

    uint64_t random() {  // xorshift
        stalls ^= stalls << 13, stalls ^= stalls >> 7, stalls ^= stalls << 17;
        return stalls >> 8;
    }

    uint64_t delay() { return latency + (stalls && random() % 4 == 0 ? random() % 40 : 0); }

    // Whether what a channel offers is taken; an offer that changes before it is, is a fault.
    bool taken(const Port *valid, const Port *ready, const Port *port, std::string &before) {
        if (!stalls) return get(valid);
        std::string now(static_cast<const char *>(port->data), get(valid) ? port->bytes : 0);
        if (!before.empty() && now != before) faults++;
        before = get(ready) ? std::string() : now;
        return get(valid) && get(ready);
    }

    Burst command(const Port *port, uint64_t cycle) {
        uint64_t word = get(port);
        uint64_t beats = (word >> 32 & ((1ull << length_bits) - 1)) + 1;
        return {word & 0xffffffffull, beats, cycle + delay()};
    }

    // Before the edge that ends `cycle`: takes what the design offers, which are registers.
    void sample(uint64_t cycle) {
        if (taken(ar_valid, ar_ready, ar, offered[0])) reads.push_back(command(ar, cycle));
        if (taken(aw_valid, aw_ready, aw, offered[1])) writes.push_back(command(aw, cycle));
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
            writes.pop_front();
            written = 0;
            responses.push_back(cycle + delay());
        }
    }

    // Sets the design's inputs for `cycle`.
    void drive(uint64_t cycle) {
        if (stalls) {
            set(ar_ready, happens()), set(aw_ready, happens());
            set(w_ready, !writes.empty() && happens());
        }
        bool beats = !reads.empty() && reads.front().ready <= cycle && happens();
        set(r_valid, beats);
        if (beats) {
            Burst &burst = reads.front();
            std::fill(payload.begin(), payload.end(), 0);
            if (burst.address + beat <= size) memcpy(payload.data(), bytes + burst.address, beat);
            else faults++;
            burst.address += beat;
            if (--burst.beats == 0) {
                payload[beat] = 1;
                reads.pop_front();
            }
            memcpy(r->data, payload.data(), r->bytes);
        }
        bool responds = !responses.empty() && responses.front() <= cycle && happens();
        set(b_valid, responds);
        if (responds) responses.pop_front();
    }
};
