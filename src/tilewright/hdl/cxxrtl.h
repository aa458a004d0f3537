// The engine CXXRTL for harness.h and driver.h. Include this file after `design.cc` and PORTS.
static std::string printed;

struct Design {
    cxxrtl_design::p_top top;
    cxxrtl::debug_items items;

    cxxrtl::vcd_writer writer;
    std::ofstream file;

    void eval() { top.step(); }
    bool stopped() const { return false; }

    // Writes all named signals except memories; times are in half cycles.
    bool wave(const char *path) {
        file.open(path);
        writer.timescale(1, "ns");
        writer.add_without_memories(items);
        return file.good();
    }

    void sample(uint64_t time) {
        writer.sample(time);
        file << writer.buffer;
        file.flush();
        writer.buffer.clear();
    }

    void list(std::vector<Port> &ports) {
        top.debug_info(&items, nullptr, "");
        for (const char *name : PORTS) {
            if (!items.count(name)) continue;
            const cxxrtl::debug_item &item = items.at(name)[0];
            bool input = item.flags & cxxrtl::debug_item::INPUT;
            ports.push_back({name, input && item.next ? item.next : item.curr, (uint32_t)item.width,
                             (uint32_t)(item.width + 31) / 32 * 4});
        }
    }
};
