"""The vendor's functional model and cycle estimator, as references that share no code with the simulator.

Both are libraries in the wheel tpu_mlir 1.15.1, which is no part of this project. To run these tests, unpack the wheel
(`pip download --no-deps --ignore-requires-python --python-version 3.10 --only-binary=:all: tpu_mlir==1.15.1`, then
`unzip`), and set TILEWRIGHT_TPU_MLIR to the folder that holds tpu_mlir/.
"""
