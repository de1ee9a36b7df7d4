"""Answers with the ten best items of a history, from what docs/serving.md has exported.

    python docs/examples/server.py --service=service --items=items.json --port=8000
    curl -d '{"history": ["p7", "p8", "p9"]}' localhost:8000

It needs TensorFlow for a SavedModel, or JAX and flatbuffers for a program of `jax.export`; and not
softbench.
"""

import argparse
import json
import os
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np


def saved_model(folder: str) -> tuple[Callable, int]:
    """(history (1, T) -> {"ids", "scores"}, T) of a SavedModel."""
    import tensorflow as tf

    call = tf.saved_model.load(folder).signatures["serving_default"]
    length = call.structured_input_signature[1]["history"].shape[1]
    return lambda history: call(history=tf.constant(history)), length


def jax_program(folder: str) -> tuple[Callable, int]:
    """As `saved_model`, of `program` and `weights.npz`."""
    import jax
    import jax.export

    with open(os.path.join(folder, "program"), "rb") as file:
        program = jax.export.deserialize(bytearray(file.read()))
    with np.load(os.path.join(folder, "weights.npz")) as saved:
        leaves = [jax.device_put(saved[name]) for name in saved.files]
    weights, _ = jax.tree.unflatten(program.in_tree, [*leaves, None])[0]
    call = jax.jit(program.call)
    return lambda history: call(weights, history), program.in_avals[-1].shape[1]


def recommender(folder: str, names: list[str]) -> Callable[[list[str]], list[dict]]:
    """(names of the items of a history, the last one last) -> the best others with scores."""
    is_saved_model = os.path.exists(os.path.join(folder, "saved_model.pb"))
    call, length = (saved_model if is_saved_model else jax_program)(folder)
    number = {name: i for i, name in enumerate(names)}

    def recommend(history: list[str]) -> list[dict]:
        row = [number[name] for name in history if name in number][-length:]
        row = np.array([[-1] * (length - len(row)) + row], "int32")
        answer = {name: np.asarray(value)[0] for name, value in call(row).items()}
        pairs = zip(answer["ids"].tolist(), answer["scores"].tolist(), strict=True)
        return [{"item": names[i], "score": score} for i, score in pairs if i >= 0]

    recommend([])  # compiles
    return recommend


def server(port: int, recommend: Callable[[list[str]], list[dict]]) -> ThreadingHTTPServer:
    """A server of POST {"history": [names]}; a body that is no such thing gets status 400."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
                history = [str(name) for name in body["history"]]
            except (ValueError, TypeError, KeyError):
                self.send_error(400, 'the body must be {"history": [names of items]}')
                return
            content = json.dumps(recommend(history)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--service", required=True, help="folder of the exported model")
    parser.add_argument("--items", required=True, help="JSON: the names of the items")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    with open(arguments.items) as file:
        names = json.load(file)
    server(arguments.port, recommender(arguments.service, names)).serve_forever()


if __name__ == "__main__":
    main()
