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
    **{
        f"tpu_bdc_fp_{name}": f"{_HEAD}{_work(2, 'coeff_addr')}{_TYPED}"
        for name in ("sinh", "cosh", "tanh", "exp_for_neg_arg", "gelu_fast", "gelu_fast2")
    },
    **{f"tpu_bdc_load_fp_{name}_coeff": "local_addr_t coeff_addr, data_type_t dtype" for name in ("arcsin", "tan")},
    "tpu_bdc_fp32_gelu_fast2": f"{_HEAD}{_work(2, 'coeff_addr', 'table_addr')}{_SHAPE}",
    "tpu_bdc_fp_elu": f"{_HEAD}{_work(2, 'coeff_addr')}float alpha, {_TYPED}",
    "tpu_bdc_fp_log_sigmoid": f"{_HEAD}{_work(2, 'coeff_addr', 'ln_coeff_addr')}{_TYPED}",
    "tpu_bdc_fp_softplus": (
        f"{_HEAD}{_work(2, 'exp_coeff_addr', 'log_coeff_addr')}{_SHAPE}, float beta, data_type_t dtype"
    ),
    "tpu_bdc_bf16_sigmoid_fast": f"{_HEAD}{_work(2)}{_SHAPE}",
    "tpu_bdc_bf16_gelu_fast2": f"{_HEAD}{_work(2)}{_SHAPE}",
}
