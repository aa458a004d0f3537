"""The neutral graph between the readers of model files and the compilers of machines, and its exact evaluation.

`ir.py` has the graph, its nodes and the base class of operators; `tensor.py` has tensors and their quantisation. In
`ops/`, each class is an operator: its shape rule and its arithmetic on integers. `rounding.py` has the rounding rules
of the runtimes, each with its source, and the modes that select the rules: depending on the mode, an operator gives the
codes of TFLite Micro, LiteRT, XNNPACK or onnxruntime.

`reference.py` evaluates a graph; every machine must reproduce these results. `layout.py` converts networks with
channels first to channels last. `takes.py` has the reasons why compilers leave a node to the host. `ort.py` runs ONNX
operators that have no class in `ops/`.
"""
