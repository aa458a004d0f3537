"""Train a small VGG on scikit-learn's handwritten digits: 3x3 convolutions, 2x2 pools, dense layers, nothing else.

Needs what ../digits/train.py needs, and uses its data, quantisation and conversion. In this folder, with Python 3.11:
    python3 -m venv .train && .train/bin/pip install -r ../digits/requirements-train.txt
    .train/bin/python train.py
It writes digits_vgg.tflite (int8 in and out, input (1, 8, 8, 1)) and prints the accuracy on the whole held-out set.
../digits/samples.npz has held-out images of the same split.
"""

import runpy
from pathlib import Path
from types import SimpleNamespace

import keras
import tensorflow as tf
from keras import layers

HERE = Path(__file__).parent
digits = SimpleNamespace(**runpy.run_path(str(HERE.parent / "digits" / "train.py")))


def build() -> keras.Model:
    image = keras.Input((8, 8, 1))
    x = image
    for width in (16, 32):
        for _ in range(2):
            x = digits.conv(x, layers.Conv2D(width, 3, padding="same", use_bias=False))
        x = layers.MaxPooling2D(2)(x)
    x = layers.Dropout(0.3)(layers.Dense(64, activation="relu")(layers.Flatten()(x)))
    return keras.Model(image, layers.Dense(10, activation="softmax")(x))


if __name__ == "__main__":
    keras.utils.set_random_seed(digits.SEED)
    tf.config.experimental.enable_op_determinism()
    pixels, held_out, labels, truth = digits.load()
    model = build()
    rate = keras.optimizers.schedules.CosineDecay(3e-3, digits.EPOCHS * -(-len(labels) // digits.BATCH))
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy")
    model.fit(digits.real(pixels), labels, batch_size=digits.BATCH, epochs=digits.EPOCHS, verbose=0)
    flat = digits.convert(model, calibration=pixels[:300])
    (HERE / "digits_vgg.tflite").write_bytes(flat)
    kind = tf.lite.experimental.OpResolverType
    for name, scores in {
        "float": model.predict(digits.real(held_out), verbose=0),
        "int8, TFLite reference kernels": digits.predict(flat, held_out, kind.BUILTIN_REF),
    }.items():
        right = int((scores.argmax(axis=1) == truth).sum())
        print(f"{name}: {right} of {len(truth)} right ({right / len(truth):.2%})")
