"""Models and codes for other programs: encoders as ONNX files, codes as sentence-transformers has them."""

from hashlearn.interchange.embeddings import from_sentence_transformers, to_sentence_transformers
from hashlearn.interchange.onnx import export_onnx

__all__ = ["export_onnx", "from_sentence_transformers", "to_sentence_transformers"]
