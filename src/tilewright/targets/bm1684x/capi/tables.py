"""Functions of the device API that load tables of static memory, and those that the chip does not have."""

from __future__ import annotations

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi.forms import Functions, Given, Issuer, Run
from tilewright.targets.bm1684x.config import STATIC_BASE
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.values.dtypes import F32
from tilewright.targets.bm1684x.values.tables import OFFSETS


def _load(name: str) -> Run:
    """Return the C function that copies a table to all lanes."""

    def run(api: Issuer, given: Given) -> None:
        dtype = given.get("dtype", F32)
        if (name, dtype) not in OFFSETS:
            known = ", ".join(str(own) for table, own in OFFSETS if table == name)
            raise MachineError(given["name"], f"static memory has no such table of {dtype}", f"give {known}")
        offset, count = OFFSETS[name, dtype]
        api.begins(given["coeff"], "aligned")  # although it is compact
        y = api.local(given["coeff"], Shape(1, api.config.lanes, 1, count), None, dtype, layout.compact)
        x = Tensor.ddr(STATIC_BASE + offset, (1, 1, 1, count), dtype, api.config)
        api.issue("static_bcast", {"x": x}, {"y": y})

    return run


LOADED = ("log", "sin", "cos", "arcsin", "tan", "erf")
#: Functions by name, without the prefix tpu_bdc_.
LOADS: Functions = {
    **{f"load_{kind}_{name}_coeff": _load(name) for kind in ("fp32", "fp") for name in (*LOADED, "exp")},
}

#: Functions of later chips: their parameters are not checked, as the vendor's model refuses every call.
LATER = """
    tpu_bdc_conv2d_requant_C tpu_bdc_conv2d_requant_C_asym_C tpu_bdc_conv2d_requant_C_asym_pc
    tpu_bdc_conv2d_requant_pc tpu_bdc_conv2d_requant_pc_asym_C tpu_bdc_conv2d_requant_pc_asym_pc
    tpu_bdc_depthwise2d_requant_C_sym_C tpu_bdc_depthwise2d_requant_pc_asym_C tpu_bdc_f16_group_dequant
    tpu_bdc_fp8_C_sub tpu_bdc_fp8_add_C tpu_bdc_fp8_mm tpu_bdc_fp8_mm_R_trans tpu_bdc_fp8_mm_R_trans_with_bias
    tpu_bdc_fp8_mm_all_trans tpu_bdc_fp8_mm_all_trans_with_bias tpu_bdc_fp8_mm_with_bias tpu_bdc_fp8_mul_C
    tpu_bdc_fp_avg_pool2d_ex tpu_bdc_fp_conv2d_backward tpu_bdc_fp_conv2d_rescale_C tpu_bdc_fp_conv2d_rescale_pc
    tpu_bdc_fp_conv2d_with_rescale tpu_bdc_fp_conv_bw tpu_bdc_fp_depthwise2d_with_scale tpu_bdc_fp_min_pool2d
    tpu_bdc_fp_roi_min_pool2d tpu_bdc_int8_min_pool2d tpu_bdc_int8_roi_min_pool2d tpu_bdc_int_max_pool2d
    tpu_bdc_int_min_pool2d tpu_gdma_compress_RACU_L2S tpu_gdma_compress_RACU_max_meta_bytes
    tpu_gdma_compress_RACU_max_racu_bytes tpu_gdma_compress_RACU_meta_stride tpu_gdma_compress_RACU_racu_stride
    tpu_gdma_compress_normal_L2S tpu_gdma_compress_normal_max_bytes tpu_gdma_decompress_RACU_S2L
    tpu_gdma_decompress_normal_S2L tpu_gdma_h_gather_S2S_ext tpu_gdma_h_scatter_S2S_ext tpu_gdma_reverse_L2L
    tpu_gdma_reverse_L2S tpu_gdma_reverse_S2L tpu_gdma_reverse_S2S tpu_gdma_system_set tpu_hau_sort_2d
    tpu_bdc_random_gen tpu_bdc_random_gen_init tpu_bdc_random_gen_load_state tpu_gdma_random_mask_set_seed
    tpu_bdc_arithmetic_sequence_bcast_with_dtype tpu_bdc_arithmetic_sequence_distribute_with_dtype
    tpu_bdc_arithmetic_sequence_distribute_aligned_with_dtype tpu_bdc_arithmetic_sequence_general_with_dtype
    tpu_bdc_bf16_gelu_fast2 tpu_bdc_bf16_sigmoid_fast tpu_bdc_end tpu_bdc_fp8_avg_pool2d tpu_bdc_fp_conv2d_with_ins
    tpu_bdc_fp_elu tpu_bdc_fp_exp_for_neg_arg tpu_bdc_load_div_lut tpu_bdc_send_msg tpu_bdc_wait_msg
    tpu_gdma_send_msg tpu_gdma_wait_msg tpu_hau_send_msg tpu_hau_wait_msg tpu_gdma_cpy_nctrans_reduce_L12L2
    tpu_gdma_cpy_nctrans_reduce_L22L2 tpu_gdma_cpy_nctrans_reduce_S2L2 tpu_gdma_cpy_reduce_L12L2
    tpu_gdma_cpy_reduce_L22L2 tpu_gdma_cpy_reduce_S2L2 tpu_gdma_lossy_compress_L2S tpu_gdma_lossy_compress_S2S
    tpu_gdma_lossy_compress_reduce_L12L2 tpu_gdma_lossy_compress_reduce_L22L2 tpu_gdma_lossy_compress_reduce_S2L2
    tpu_gdma_lossy_decompress_S2L tpu_gdma_lossy_decompress_S2S tpu_gdma_lossy_decompress_reduce_L22L2
    tpu_gdma_lossy_decompress_reduce_S2L2 tpu_gdma_random_mask_S2L tpu_gdma_random_mask_init_seed_S2L
    tpu_bdc_fp_roi_depthwise2d tpu_hau_sort_natural_index_2d tpu_hau_sort_specific_index_2d
"""
REFUSED = frozenset(LATER.split())
