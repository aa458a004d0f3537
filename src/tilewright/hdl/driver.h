// The C interface of a compiled design. Include it after the engine's `Design`.
struct Watch {
    Port *port;
    uint64_t number;
};

struct Sim {
    Design design;
    std::vector<Port> ports;
    std::deque<Memory> memories;
    std::vector<Watch> watches;
    std::vector<uint64_t> events;  // pairs (number of the watch, cycle)
    Port *clk = nullptr;
    uint64_t cycle = 0;
    uint64_t wave_first = 1, wave_last = 0, wave_origin = 0;

    bool waves() const { return wave_first <= cycle && cycle <= wave_last; }
    uint64_t wave_time() const { return 2 * (cycle - wave_origin); }

    Sim() {
        design.eval();
        design.list(ports);
        clk = find("clk");
    }

    Port *find(const std::string &name) {
        for (Port &port : ports)
            if (port.name == name) return &port;
        return nullptr;
    }
};

extern "C" {

void *tw_open() {
    printed.clear();
    return new Sim;
}
void tw_close(Sim *sim) { delete sim; }
uint64_t tw_cycle(Sim *sim) { return sim->cycle; }

// Enables random stalls of a memory. The seed must not be 0.
void tw_stall(Memory *memory, uint64_t seed) { memory->stalls = seed * 0x9e3779b97f4a7c15ull; }

// Returns the name of port `number` and the location of its bits; null past the last port.
const char *tw_port(Sim *sim, uint32_t number, void **data, uint32_t *bits, uint32_t *bytes) {
    if (number >= sim->ports.size()) return nullptr;
    Port &port = sim->ports[number];
    *data = port.data, *bits = port.bits, *bytes = port.bytes;
    return port.name.c_str();
}

// Logs each cycle in which a port is not 0, as (number, cycle).
void tw_watch(Sim *sim, const char *name, uint64_t number) { sim->watches.push_back({sim->find(name), number}); }

uint64_t tw_events(Sim *sim, uint64_t **events) {
    *events = sim->events.data();
    return sim->events.size() / 2;
}

// Connects a memory to the ports PREFIX__ar .. PREFIX__b. Returns null if the design lacks these ports.
Memory *tw_memory(Sim *sim, const char *prefix, uint8_t *bytes, uint64_t size, uint64_t latency) {
    auto at = [&](const char *name) { return sim->find(std::string(prefix) + "__" + name); };
    Memory memory{bytes, size, latency < 1 ? 1 : latency, 0};
    memory.ar_valid = at("ar__valid"), memory.ar_ready = at("ar__ready"), memory.ar = at("ar__payload");
    memory.r_valid = at("r__valid"), memory.r = at("r__payload");
    memory.aw_valid = at("aw__valid"), memory.aw_ready = at("aw__ready"), memory.aw = at("aw__payload");
    memory.w_valid = at("w__valid"), memory.w_ready = at("w__ready"), memory.w = at("w__payload");
    memory.b_valid = at("b__valid"), memory.r_ready = at("r__ready"), memory.b_ready = at("b__ready");
    memory.ar_id = at("ar__id"), memory.r_id = at("r__id"), memory.aw_id = at("aw__id"), memory.b_id = at("b__id");
    if (!memory.ar || !memory.r || !memory.aw || !memory.w || !memory.b_valid) return nullptr;
    memory.beat = (memory.r->bits - 1) / 8;
    memory.length_bits = memory.ar->bits - 32;
    memory.payload.resize(memory.r->bytes + 8);
    set(memory.ar_ready, 1), set(memory.aw_ready, 1), set(memory.w_ready, 1);
    sim->memories.push_back(std::move(memory));
    return &sim->memories.back();
}

// Returns the number of beats written to a memory, and the logs of these beats.
uint64_t tw_written(Memory *memory, uint64_t **places, uint8_t **beats, uint64_t *bytes) {
    *places = memory->log_places.data(), *beats = memory->log_beats.data(), *bytes = memory->beat;
    return memory->log_places.size() / 2;
}

// Returns the number of read bursts of a memory, and their log.
uint64_t tw_read(Memory *memory, uint64_t **places) {
    *places = memory->log_reads.data();
    return memory->log_reads.size() / 3;
}

uint64_t tw_faults(Memory *memory) { return memory->faults; }

// Writes a waveform of the cycles `first` to `last` to a file; `origin` is at time 0. Returns 0 if the engine has no
// waveforms.
int tw_wave(Sim *sim, const char *path, uint64_t first, uint64_t last, uint64_t origin) {
    sim->wave_first = first, sim->wave_last = last, sim->wave_origin = origin;
    return sim->design.wave(path);
}

// The text that the design printed in this thread, such as the message of an assertion.
const char *tw_printed() { return printed.c_str(); }

// Runs until the port `until` is not 0 (ignored if null), or until `events` events have been logged. Returns 1 in this
// case, 0 after `most` cycles, or 2 if an assertion fails or the design ends the simulation.
int tw_run(Sim *sim, uint64_t most, const char *until, uint64_t events) {
    Port *stop = until ? sim->find(until) : nullptr;
    for (uint64_t end = sim->cycle + most; sim->cycle < end;) {
        for (Memory &memory : sim->memories) memory.drive(sim->cycle);
        set(sim->clk, 0);
        sim->design.eval();
        if (sim->waves()) sim->design.sample(sim->wave_time());
        if (sim->design.stopped()) return 2;
        if ((stop && get(stop)) || sim->events.size() / 2 >= events) return 1;
        for (Memory &memory : sim->memories) memory.sample(sim->cycle);
        for (Watch &watch : sim->watches)
            if (get(watch.port)) sim->events.push_back(watch.number), sim->events.push_back(sim->cycle);
        set(sim->clk, 1);
        sim->design.eval();
        if (sim->waves()) sim->design.sample(sim->wave_time() + 1);
        if (sim->design.stopped()) return 2;
        sim->cycle++;
    }
    set(sim->clk, 0);  // CXXRTL updates its outputs only in this step
    sim->design.eval();
    return 0;
}

// Runs `count` cycles. In cycle i, each of `many` ports has row i of its `values`. Row i of `recorded` is the value of
// the port `record` after cycle i (ignored if null).
void tw_play(Sim *sim, uint32_t many, const char **names, const uint8_t **values, uint64_t count, const char *record,
             uint8_t *recorded) {
    std::vector<Port *> ports;
    for (uint32_t i = 0; i < many; i++) ports.push_back(sim->find(names[i]));
    Port *out = record ? sim->find(record) : nullptr;
    for (uint64_t cycle = 0; cycle < count; cycle++) {
        for (uint32_t i = 0; i < many; i++)
            memcpy(ports[i]->data, values[i] + cycle * ports[i]->bytes, ports[i]->bytes);
        tw_run(sim, 1, nullptr, ~0ull);
        if (out) memcpy(recorded + cycle * out->bytes, out->data, out->bytes);
    }
}
}
