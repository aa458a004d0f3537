"""Make ops/*.tflite: small int8 models, one or a few operators each, with odd shapes, for the arithmetic tests.

    python tests/data/make_ops.py [NAME ...]         needs tensorflow 2.19 (not a dependency of Tilewright)

Weights and calibration data are seeded, one generator a model, so a rerun gives the same models.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

OUT = Path(__file__).parent / "ops"
GAINS = (1.0, 3.0)  # spreads of the calibration data of the first and second input
Network = Callable[..., tf.Tensor]
Make = Callable[[np.random.Generator], Network]


@dataclass(frozen=True)
class Model:
    """`make` draws the weights and returns the float function."""

    shapes: tuple[tuple[int, ...], ...]
    make: Make
    float_io: bool = False
    dense_per_channel: bool = False


MODELS: dict[str, Model] = {}


def model(*shapes: tuple[int, ...], **options: object) -> Callable[[Make], Make]:
    """Register the decorated function under its name."""

    def register(make: Make) -> Make:
        MODELS[make.__name__] = Model(shapes, make, **options)  # type: ignore[arg-type]
        return make

    return register


def weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Float32 weights whose spread differs from one output channel (last axis) to the next."""
    return (rng.normal(0, 0.3, shape) * rng.uniform(0.3, 2, shape[-1])).astype(np.float32)


def conv(
    rng: np.random.Generator,
    *shape: int,
    stride: tuple[int, int] = (1, 1),
    padding: str = "SAME",
    dilation: tuple[int, int] = (1, 1),
    depthwise: bool = False,
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Convolution and bias; `shape` is (KH, KW, C, OC) or, depthwise, (KH, KW, C, multiplier)."""
    w = weights(rng, *shape)
    b = weights(rng, shape[2] * shape[3] if depthwise else shape[3])
    if depthwise:
        return lambda x: tf.nn.depthwise_conv2d(x, w, (1, *stride, 1), padding, dilations=dilation) + b
    return lambda x: tf.nn.conv2d(x, w, stride, padding, dilations=dilation) + b


def dense(rng: np.random.Generator, inputs: int, outputs: int) -> Callable[[tf.Tensor], tf.Tensor]:
    w, b = weights(rng, inputs, outputs), weights(rng, outputs)
    return lambda x: tf.matmul(x, w) + b


# ---------------------------------------------------------------- CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED


@model((1, 7, 9, 3))
def conv_same_relu(rng: np.random.Generator) -> Network:
    f = conv(rng, 3, 3, 3, 5)
    return lambda x: tf.nn.relu(f(x))


@model((1, 11, 8, 4))
def conv_valid_stride_2_1(rng: np.random.Generator) -> Network:
    return conv(rng, 3, 2, 4, 6, stride=(2, 1), padding="VALID")


@model((1, 13, 10, 3))
def conv_same_stride_2_relu6(rng: np.random.Generator) -> Network:
    f = conv(rng, 5, 3, 3, 8, stride=(2, 2))
    return lambda x: tf.nn.relu6(f(x))


@model((1, 12, 11, 4))
def conv_dilation_2(rng: np.random.Generator) -> Network:
    return conv(rng, 3, 3, 4, 5, dilation=(2, 2))


@model((1, 5, 7, 18))
def conv_1x1(rng: np.random.Generator) -> Network:
    return conv(rng, 1, 1, 18, 13)


@model((1, 9, 7, 6))
def depthwise_same_relu6(rng: np.random.Generator) -> Network:
    f = conv(rng, 3, 3, 6, 1, depthwise=True)
    return lambda x: tf.nn.relu6(f(x))


@model((1, 10, 13, 5))
def depthwise_valid_stride_2(rng: np.random.Generator) -> Network:
    return conv(rng, 3, 3, 5, 1, stride=(2, 2), padding="VALID", depthwise=True)


@model((1, 7, 6, 4))
def depthwise_multiplier_3(rng: np.random.Generator) -> Network:
    f = conv(rng, 3, 5, 4, 3, depthwise=True)
    return lambda x: tf.nn.relu(f(x))


@model((1, 37))
def dense_per_tensor_relu(rng: np.random.Generator) -> Network:
    f = dense(rng, 37, 11)
    return lambda x: tf.nn.relu(f(x))


@model((3, 29), dense_per_channel=True)
def dense_per_channel(rng: np.random.Generator) -> Network:
    return dense(rng, 29, 10)


# ---------------------------------------------------------------- elementwise


@model((1, 5, 6, 7), (1, 5, 6, 7))
def add_relu(rng: np.random.Generator) -> Network:
    return lambda a, b: tf.nn.relu(a + b)


@model((1, 5, 6, 7))
def add_constant(rng: np.random.Generator) -> Network:
    c = weights(rng, 7)
    return lambda x: x + c


@model((1, 5, 6, 7), (1, 5, 6, 7))
def mul_inputs(rng: np.random.Generator) -> Network:
    return lambda a, b: a * b


@model((1, 4, 5, 6))
def mul_constant_relu6(rng: np.random.Generator) -> Network:
    c = weights(rng, 6)
    return lambda x: tf.nn.relu6(x * c)


@model((1, 6, 5, 3))
def relu_relu6(rng: np.random.Generator) -> Network:
    return lambda x: (tf.nn.relu(x), tf.nn.relu6(tf.reshape(x, (1, 5, 6, 3))))


# ---------------------------------------------------------------- pooling, reductions


@model((1, 9, 7, 5))
def average_pool_same(rng: np.random.Generator) -> Network:
    return lambda x: tf.nn.avg_pool2d(x, (3, 3), (2, 2), "SAME")


@model((1, 8, 11, 4))
def average_pool_valid_relu(rng: np.random.Generator) -> Network:
    return lambda x: tf.nn.relu(tf.nn.avg_pool2d(x, (3, 2), (2, 3), "VALID"))


@model((1, 9, 8, 5))
def max_pool_same(rng: np.random.Generator) -> Network:
    return lambda x: tf.nn.max_pool2d(x, (3, 2), (2, 2), "SAME")


@model((1, 7, 5, 9))
def mean_hw(rng: np.random.Generator) -> Network:
    return lambda x: (tf.reduce_mean(x, (1, 2)), tf.reduce_mean(x, (1, 2), keepdims=True))


# ---------------------------------------------------------------- shape and type


@model((1, 5, 4, 3))
def concat_same(rng: np.random.Generator) -> Network:
    f, g = conv(rng, 1, 1, 3, 4), conv(rng, 1, 1, 3, 3)
    return lambda x: tf.concat((f(x), tf.nn.relu(g(x))), 3)


@model((1, 5, 4, 3))
def concat_requantize(rng: np.random.Generator) -> Network:
    """Softmax has a fixed scale: the converter brings it to the other's by an int8 to int8 QUANTIZE."""
    f = conv(rng, 1, 1, 3, 4)
    return lambda x: tf.concat((tf.nn.softmax(x), f(x)), 3)


@model((1, 5, 4, 3))
def pad_padv2(rng: np.random.Generator) -> Network:
    return lambda x: (
        tf.pad(x, ((0, 0), (1, 2), (0, 3), (0, 0))),
        tf.pad(x, ((0, 0), (0, 1), (2, 0), (1, 0)), constant_values=0.5),
    )


@model((2, 13))
def softmax(rng: np.random.Generator) -> Network:
    return tf.nn.softmax


@model((1, 6, 5, 3), float_io=True)
def quantize_dequantize(rng: np.random.Generator) -> Network:
    f = conv(rng, 2, 2, 3, 4)
    return lambda x: tf.nn.relu(f(x))


# ---------------------------------------------------------------- a few operators together


@model((1, 9, 9, 4))
def residual_block(rng: np.random.Generator) -> Network:
    f, g, h = conv(rng, 3, 3, 4, 6, stride=(2, 2)), conv(rng, 3, 3, 6, 6), conv(rng, 1, 1, 4, 6, stride=(2, 2))
    return lambda x: tf.nn.relu(g(tf.nn.relu(f(x))) + h(x))


@model((1, 15, 13, 2))
def small_cnn(rng: np.random.Generator) -> Network:
    f = conv(rng, 3, 3, 2, 6, stride=(2, 2))
    g, h = conv(rng, 3, 3, 6, 1, depthwise=True), conv(rng, 1, 1, 6, 10)
    d = dense(rng, 20, 7)

    def run(x: tf.Tensor) -> tf.Tensor:
        y = tf.nn.relu6(h(tf.nn.relu6(g(tf.nn.relu6(f(x))))))
        y = tf.nn.avg_pool2d(tf.nn.max_pool2d(y, 2, 2, "VALID"), 3, 1, "VALID")
        return tf.nn.softmax(d(tf.reshape(y, (1, -1))))

    return run


# ---------------------------------------------------------------- conversion


def convert(name: str, m: Model) -> bytes:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    function = tf.function(m.make(rng), [tf.TensorSpec(s, tf.float32, f"input{i}") for i, s in enumerate(m.shapes)])

    def samples() -> Iterator[list[np.ndarray]]:
        for _ in range(32):
            yield [rng.normal(0.3, gain, s).astype(np.float32) for s, gain in zip(m.shapes, GAINS, strict=False)]

    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()])
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = samples
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter._experimental_disable_per_channel_quantization_for_dense_layers = not m.dense_per_channel
    if not m.float_io:
        converter.inference_input_type = converter.inference_output_type = tf.int8
    return converter.convert()


def main(names: list[str]) -> None:
    OUT.mkdir(exist_ok=True)
    for name in names or MODELS:
        data = convert(name, MODELS[name])
        (OUT / f"{name}.tflite").write_bytes(data)
        print(f"{name}: {len(data)} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
