"""Parameters of functions that the vendor's model has, but its header does not declare.

They were found by calling the functions: their names continue those of the header, with a type as the last parameter.
"""

_HEAD = "local_addr_t dst_addr, local_addr_t src_addr, "
_SHAPE = "const dim4 *shape"
_TYPED = f"{_SHAPE}, data_type_t dtype"


def _work(count: int, *tables: str) -> str:
    return "".join(f"local_addr_t {name}, " for name in (*(f"work{number}_addr" for number in range(count)), *tables))


UNLISTED: dict[str, str] = {
    **{
        f"tpu_bdc_fp_{name}": f"{_HEAD}{_work(1, 'coeff_addr')}{_TYPED}"
        for name in ("arcsin", "arccos", "tan", "arctanh")
    },
    **{f"tpu_bdc_fp_{name}": f"{_HEAD}{_work(2, 'coeff_addr')}{_TYPED}" for name in ("sinh", "cosh", "tanh")},
    **{
        f"tpu_bdc_fp_{name}": f"{_HEAD}{_work(2, 'coeff_addr', 'table_addr')}{_TYPED}"
        for name in ("gelu_fast", "gelu_fast2")
    },
    **{f"tpu_bdc_load_fp_{name}_coeff": "local_addr_t coeff_addr, data_type_t dtype" for name in ("arcsin", "tan")},
    "tpu_bdc_fp32_gelu_fast2": f"{_HEAD}{_work(2, 'coeff_addr', 'table_addr')}{_SHAPE}",
    "tpu_bdc_fp_log_sigmoid": f"{_HEAD}{_work(2, 'coeff_addr', 'ln_coeff_addr')}{_TYPED}",
    "tpu_bdc_fp_softplus": (
        f"{_HEAD}{_work(2, 'exp_coeff_addr', 'log_coeff_addr')}{_SHAPE}, float beta, data_type_t dtype"
    ),
    "tpu_bdc_fp32_tan_cot": f"{_HEAD}local_addr_t work_addr, local_addr_t coeff_addr, {_SHAPE}, bool is_tan",
    "tpu_bdc_fp_hw_reduce_mean": f"{_HEAD}local_addr_t work_addr, {_TYPED}",
    "tpu_bdc_arithmetic_sequence_distribute_general": (
        "local_addr_t dst_addr, int start, int step, int num, bool is_aligned"
    ),
    "tpu_gdma_general_cpy_L2L": (
        f"{_HEAD}const dim4 *dst_shape, const dim4 *src_shape, const dim4 *dst_stride, const dim4 *src_stride, "
        "data_type_t dtype"
    ),
}
