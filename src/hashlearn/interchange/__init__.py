"""Models and codes for other programs: encoders as ONNX files."""

from hashlearn.interchange.onnx import export_onnx

__all__ = ["export_onnx"]
