// A CFU in lock step with the CPU, one command at a time. The rules are those of CFU-Playground's ports: a command is
// accepted when cmd_valid and cmd_ready are 1, and an answer when rsp_valid and rsp_ready are 1.
//
// Between two calls the clock is 0, and `cycle` is the next cycle to clock. Outputs match the inputs if `stale` is
// false. If the state of a design does not change in a cycle without a command, it does not change in the next cycles
// either: the inputs are constant, and the next state depends only on state and inputs. Such cycles are only counted.
struct Lockstep {
    enum Fault { NONE, UNASKED, NOT_TAKEN, NOT_ANSWERED, DIFFERS };

    // The answer, the cycle of the answer; the number of a twin, the twin's answer, its cycle, its fault.
    struct Difference {
        int64_t answer, cycle, twin, other, late, fault;
    };
    std::vector<Lockstep *> twins;  // the same design from other initial values
    bool lost = false;              // a twin after a fault or an answer in another cycle
    Difference difference;

    Sim *sim;
    Design &design;
    Port *clk, *cmd_valid, *cmd_ready, *function, *a, *b, *rsp_valid, *output;
    uint64_t limit;  // the largest number of cycles that a command or an answer waits
    bool skips;      // whether cycles that change nothing are left out
    bool stale = true, stands = false;
    uint64_t clocked = 0, wins = 0;
    uint64_t last = 0;           // the number of the last command
    uint8_t settles[1024] = {};  // by command: cycles until the state stopped changing, the last time

    Lockstep(Sim *sim, uint64_t limit, bool skips)
        : sim(sim), design(sim->design), limit(limit), skips(skips && contained) {
        clk = sim->find("clk"), cmd_valid = sim->find("cmd_valid"), cmd_ready = sim->find("cmd_ready");
        function = sim->find("cmd_payload_function_id"), a = sim->find("cmd_payload_inputs_0");
        b = sim->find("cmd_payload_inputs_1"), rsp_valid = sim->find("rsp_valid");
        output = sim->find("rsp_payload_outputs_0");
    }

    void settle() {
        if (stale) design.eval();
        stale = false;
    }

    void clock() {
        set(clk, 1);
        design.eval();
        design.fall();
        sim->cycle++, clocked++;
    }

    // Waits until a port is 1, for at most `most` cycles. Returns whether the port became 1.
    bool wait(const Port *port, uint64_t most) {
        settle();
        for (; most && !get(port); most--) clock();
        return get(port);
    }

    // Runs to cycle `end` without a command. Returns false at the first earlier cycle in which rsp_valid is 1.
    bool idle(uint64_t end) {
        uint64_t check = settles[last], step = 1;
        settle();
        for (uint64_t cycles = 0; sim->cycle < end; cycles++) {
            if (get(rsp_valid)) return false;
            if (stands) {
                sim->cycle = end;
                break;
            }
            if (cycles != check || !skips) {
                clock();
                continue;
            }
            design.remember();
            clock();
            stands = design.unchanged();
            if (!stands) check = cycles + step, step *= 2;
            else if (cycles < 256) settles[last] = ++wins % 16 ? cycles : cycles / 2;  // sometimes try an earlier cycle
        }
        return true;
    }

    // Sends the command to all twins as well. Returns DIFFERS if a twin's answer, or the cycle of the answer, is
    // different.
    Fault compared(uint64_t number, uint32_t first, uint32_t second, uint64_t cycle, int64_t *answer) {
        Fault fault = command(number, first, second, cycle, answer);
        if (fault) return fault;
        for (size_t twin = 0; twin < twins.size(); twin++) {
            if (twins[twin]->lost) continue;
            int64_t other[2] = {0, 0};
            Fault its = twins[twin]->command(number, first, second, cycle, other);
            twins[twin]->lost = its || other[1] != answer[1];
            if (fault || (!twins[twin]->lost && other[0] == answer[0])) continue;
            difference = {answer[0], answer[1], int64_t(twin), other[0], other[1], its};
            fault = DIFFERS;
        }
        return fault;
    }

    Fault command(uint64_t number, uint32_t first, uint32_t second, uint64_t cycle, int64_t *answer) {
        if (!idle(cycle)) return UNASKED;
        set(cmd_valid, 1), set(function, number), set(a, first), set(b, second);
        stale = true, stands = false, last = number % 1024;
        if (!wait(cmd_ready, limit)) return NOT_TAKEN;
        if (!get(rsp_valid)) {  // otherwise the answer comes at once
            clock();
            set(cmd_valid, 0), stale = true;
            if (!wait(rsp_valid, limit)) return NOT_ANSWERED;
        }
        answer[0] = int32_t(get(output)), answer[1] = sim->cycle;
        clock();
        set(cmd_valid, 0), stale = true;
        return NONE;
    }

#ifdef TW_SELF_CONTAINED
    static constexpr bool contained = true;
#else
    static constexpr bool contained = false;
#endif
};

extern "C" {
void *tw_lockstep(Sim *sim, uint64_t limit, int skips) { return new Lockstep(sim, limit, skips); }
void tw_lockstep_close(Lockstep *unit) { delete unit; }
void tw_lockstep_twin(Lockstep *unit, Lockstep *twin) { unit->twins.push_back(twin); }
int64_t *tw_lockstep_difference(Lockstep *unit) { return &unit->difference.answer; }
uint64_t tw_lockstep_clocked(Lockstep *unit) { return unit->clocked; }

// Sends a command in `cycle`, counted from `start`. Writes the answer and its cycle to `answer`. Returns a Fault.
int64_t tw_lockstep_command(Lockstep *unit, int64_t number, int64_t a, int64_t b, int64_t start, int64_t cycle,
                            int64_t *answer) {
    Lockstep::Fault fault = unit->compared(number, a, b, start + cycle, answer);
    answer[1] -= start;
    return fault;
}
}
