"""A transformer as its definition says: text by text, token by token, head by head, in float64."""

import math

import numpy as np


def embed(tokens, weights, n_heads, epsilon=1e-12):
    """The mean of the outputs of one text's tokens, of unit length."""
    W = {name: np.asarray(value, dtype=np.float64) for name, value in weights.items()}

    def linear(x, name):
        return W[f"{name}.weight"] @ x + W[f"{name}.bias"]

    def normalized(x, name):
        x = (x - x.mean()) / math.sqrt(((x - x.mean()) ** 2).mean() + epsilon)
        return x * W[f"{name}.weight"] + W[f"{name}.bias"]

    def gelu(value):
        return value / 2 * (1 + math.erf(value / math.sqrt(2)))

    of_tokens = []
    for place, token in enumerate(tokens):
        x = W["embeddings.word_embeddings.weight"][token] + W["embeddings.position_embeddings.weight"][place]
        x = x + W["embeddings.token_type_embeddings.weight"][0]
        of_tokens.append(normalized(x, "embeddings.LayerNorm"))
    layer = 0
    while f"encoder.layer.{layer}.output.dense.weight" in W:
        at = f"encoder.layer.{layer}"
        parts = {
            part: [linear(x, f"{at}.attention.self.{part}") for x in of_tokens] for part in ("query", "key", "value")
        }
        size = len(of_tokens[0]) // n_heads
        after = []
        for i, x in enumerate(of_tokens):
            read = []
            for head in range(n_heads):
                own = slice(head * size, (head + 1) * size)
                scores = [parts["query"][i][own] @ key[own] / math.sqrt(size) for key in parts["key"]]
                shares = [math.exp(score) for score in scores]
                read.append(sum(s / sum(shares) * v[own] for s, v in zip(shares, parts["value"], strict=True)))
            x = normalized(
                x + linear(np.concatenate(read), f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm"
            )
            hidden = np.array([gelu(value) for value in linear(x, f"{at}.intermediate.dense")])
            after.append(normalized(x + linear(hidden, f"{at}.output.dense"), f"{at}.output.LayerNorm"))
        of_tokens, layer = after, layer + 1
    mean = np.mean(of_tokens, axis=0)
    return mean / np.linalg.norm(mean)
