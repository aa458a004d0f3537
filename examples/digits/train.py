"""Train a small CNN on scikit-learn's handwritten digits and convert it to full-int8 TFLite.

Only this script needs TensorFlow and scikit-learn. In this folder, with Python 3.11:
    python3 -m venv .train && .train/bin/pip install -r requirements-train.txt
    .train/bin/python train.py
It writes, next to itself:
    digits.tflite      int8 in, int8 out, input shape (1, 8, 8, 1)
    samples.npz        `inputs` (100, 8, 8, 1) int8 and `labels` (100,) int64: held-out images
    images/0..9.png    the first ten of these samples, as 8-bit grey images

and prints the accuracy on the whole held-out set, before and after quantisation.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from keras import layers
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

HERE = Path(__file__).parent
SEED, EPOCHS, BATCH = 7, 60, 32
Array = npt.NDArray[np.generic]


def load() -> tuple[Array, Array, Array, Array]:
    """Training and held-out images (8-bit grey, (N, 8, 8, 1)), training and held-out labels."""
    digits = load_digits()
    pixels = np.rint(digits.images * 255 / 16).astype(np.uint8)[..., None]
    labels = digits.target.astype(np.int64)
    split = train_test_split(pixels, labels, test_size=0.3, stratify=labels, random_state=SEED)
    return split[0], split[1], split[2], split[3]


def real(pixels: Array) -> Array:
    """What the float network sees: pixel / 255."""
    return pixels.astype(np.float32) / np.float32(255)


def quantise(pixels: Array) -> Array:
    """What the int8 network sees: the same numbers at scale 1/255 and zero point -128."""
    return (pixels.astype(np.int16) - 128).astype(np.int8)


def conv(x: keras.KerasTensor, layer: layers.Layer, relu: bool = True) -> keras.KerasTensor:
    """A convolution with batch norm, which the converter folds into its weights."""
    x = layers.BatchNormalization()(layer(x))
    return layers.ReLU()(x) if relu else x


def build() -> keras.Model:
    same = {"padding": "same", "use_bias": False}
    image = keras.Input((8, 8, 1))
    x = conv(image, layers.Conv2D(16, 3, **same))
    x = conv(x, layers.DepthwiseConv2D(3, **same))
    x = conv(x, layers.Conv2D(16, 1, **same))
    branch = conv(x, layers.Conv2D(16, 3, **same), relu=False)
    x = layers.ReLU()(layers.Add()([x, branch]))
    x = conv(x, layers.Conv2D(32, 3, strides=2, **same))
    x = layers.Flatten()(layers.AveragePooling2D(2)(x))
    return keras.Model(image, layers.Dense(10, activation="softmax")(layers.Dropout(0.3)(x)))


def convert(model: keras.Model, calibration: Array) -> bytes:
    signature = [keras.InputSpec(shape=(1, 8, 8, 1), dtype="float32", name="image")]
    with TemporaryDirectory() as folder:
        model.export(folder, input_signature=signature, verbose=False)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([image[None]] for image in real(calibration))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
        return bytes(converter.convert())


def predict(flat: bytes, pixels: Array, kernels: tf.lite.experimental.OpResolverType) -> Array:
    net = tf.lite.Interpreter(model_content=flat, experimental_op_resolver_type=kernels)
    net.allocate_tensors()
    source, sink = net.get_input_details()[0], net.get_output_details()[0]
    assert source["quantization"] == (np.float32(1 / 255), -128), source["quantization"]
    scores = []
    for image in quantise(pixels):
        net.set_tensor(source["index"], image[None])
        net.invoke()
        scores.append(net.get_tensor(sink["index"])[0])
    return np.array(scores)


def write_samples(pixels: Array, labels: Array) -> None:
    """The first ten held-out images of each digit, so that sample i shows i % 10."""
    chosen = np.stack([np.flatnonzero(labels == digit)[:10] for digit in range(10)], axis=1).ravel()
    inputs = quantise(pixels[chosen])
    np.savez_compressed(HERE / "samples.npz", inputs=inputs, labels=labels[chosen])
    for digit in range(10):
        tf.io.write_file(f"{HERE}/images/{digit}.png", tf.io.encode_png(pixels[chosen[digit]]))


if __name__ == "__main__":
    keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    pixels, held_out, labels, truth = load()
    model = build()
    rate = keras.optimizers.schedules.CosineDecay(3e-3, EPOCHS * -(-len(labels) // BATCH))
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy")
    model.fit(real(pixels), labels, batch_size=BATCH, epochs=EPOCHS, verbose=0)
    flat = convert(model, calibration=pixels[:300])
    (HERE / "digits.tflite").write_bytes(flat)
    write_samples(held_out, truth)
    kind = tf.lite.experimental.OpResolverType
    for name, scores in {
        "float": model.predict(real(held_out), verbose=0),
        "int8, TFLite reference kernels": predict(flat, held_out, kind.BUILTIN_REF),
        "int8, TFLite default kernels": predict(flat, held_out, kind.AUTO),
    }.items():
        right = int((scores.argmax(axis=1) == truth).sum())
        print(f"{name}: {right} of {len(truth)} right ({right / len(truth):.2%})")
