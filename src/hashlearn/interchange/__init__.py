"""Export models, codes and collections: ONNX, sentence-transformers, FAISS, NumPy, Parquet, pgvector."""

from hashlearn.interchange.embeddings import from_sentence_transformers, to_sentence_transformers
from hashlearn.interchange.exports import EXPORTS, export_faiss, export_npy, export_parquet, export_pgvector
from hashlearn.interchange.neighbors import CodeNeighborsTransformer
from hashlearn.interchange.onnx import export_onnx

__all__ = [
    "EXPORTS",
    "CodeNeighborsTransformer",
    "export_faiss",
    "export_npy",
    "export_onnx",
    "export_parquet",
    "export_pgvector",
    "from_sentence_transformers",
    "to_sentence_transformers",
]
