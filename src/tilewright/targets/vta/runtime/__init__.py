"""A runtime for VTA with the concepts of TVM's (vta/runtime/runtime.cc); see docs/vta.md, Runtime."""
