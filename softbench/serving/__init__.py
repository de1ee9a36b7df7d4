"""The best classes in production: an index of the class table, and a layer to export.

    index = softbench.serving.Index(model.head)  # once, after training
    scores, ids = model.head.top_k(hidden, 10, approximate=index)

For TensorFlow Serving, a model from a row's inputs to {"scores": (B, k), "ids": (B, k)}:

    inputs = keras.Input((length,), dtype="int32", name="tokens")
    best = softbench.serving.TopK(model.head, 10, approximate=index)
    keras.Model(inputs, best(model.encoder(inputs))).export("folder/1")

For an index of another library, `head.index_vectors()` is its data and `head.index_queries(hidden)`
are its queries, with the inner product as the measure: with FAISS,

    vectors = head.index_vectors()
    index = faiss.IndexHNSWFlat(vectors.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    index.add(vectors)
    scores, ids = index.search(np.asarray(head.index_queries(hidden)), 10)

and with ScaNN `scann.scann_ops_pybind.builder(vectors, 10, "dot_product")`.
"""

from softbench.serving.index import Index
from softbench.serving.layer import TopK

__all__ = ["Index", "TopK"]
