"""The colour of each cause, the same in every figure of a page."""

from __future__ import annotations

from tilewright.report.record import Record

#: The colours of Okabe and Ito, which colour-blind readers can tell apart (https://jfly.uni-koeln.de/color/), and grey.
BLUE, SKY, GREEN, ORANGE, RED, PINK, GREY = "#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7", "#8a8f98"
VIOLET, BROWN, LILAC = "#7b61c9", "#8c5a2b", "#b3a4e0"
#: Work is blue, data that move are green and yellow, waits are red and pink. Of energies, work is blue, DRAM red.
KNOWN = {
    **dict.fromkeys(("GEMM", "tiu", "engine", "CPU arithmetic", "compute"), BLUE),
    **dict.fromkeys(("ALU", "CFU wait"), SKY),
    **dict.fromkeys(("load bandwidth", "dma", "data block", "data blocks", "load"), GREEN),
    **dict.fromkeys(("store bandwidth", "result block", "result blocks", "store", "memory"), ORANGE),
    **dict.fromkeys(("DRAM latency", "weight block", "weight blocks"), RED),
    **dict.fromkeys(("DRAM contention", "bias block", "bias blocks"), PINK),
    **dict.fromkeys(("instruction fetch", "relayout"), VIOLET),
    **dict.fromkeys(("control", "host", "token queue full", "cycles"), GREY),
    **{"sram inp": GREEN, "sram wgt": BROWN, "sram acc": VIOLET, "sram out": LILAC},
    **dict.fromkeys(("sram uop", "sram alu_uop", "sram par", "sram command queues"), GREY),
    **{"macs": BLUE, "operations": SKY, "dram_read": RED, "dram_write": ORANGE, "dram_activate": PINK},
}
OTHERS = (BROWN, VIOLET, PINK, RED, ORANGE, GREEN, SKY, BLUE)


def palette(record: Record) -> dict[str, str]:
    """Return the colour of each cause in a run, as #rrggbb."""
    summary, launches = record.run["summary"], record.run["launches"]
    names = [*summary["causes"], *(name for launch in launches for name in launch["causes"])]
    names += [colour for launch in launches for _, colour, *_ in launch["chart"]["kinds"] if colour]
    names += (summary.get("energy") or {}).get("by", ())
    unknown = [name for name in dict.fromkeys(names) if name not in KNOWN]
    return {name: KNOWN[name] for name in dict.fromkeys(names) if name in KNOWN} | {
        name: OTHERS[index % len(OTHERS)] for index, name in enumerate(unknown)
    }
