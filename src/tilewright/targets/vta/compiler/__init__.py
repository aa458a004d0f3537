"""VTA's compiler: graph -> layers (lower) -> plans (search) -> schedules -> instruction streams (emit)."""
