"""Images of digits, 16 x 16: USPS from a folder, or generated ones instead."""

from pathlib import Path

import numpy as np

SIDE = 16


def load_usps(data_dir: str | Path) -> np.ndarray:
    """The training images of USPS, float32 (7291, 256) in [0, 1], from `usps/usps.h5`.

    Raises:
        FileNotFoundError: if `data_dir` does not hold the file.
    """
    import h5py  # comes with Keras

    path = Path(data_dir) / "usps" / "usps.h5"
    if not path.is_file():
        raise FileNotFoundError(
            f"`data_dir` must hold usps/usps.h5 (a group `train` with `data`). Received: {data_dir}"
        )
    with h5py.File(path) as file:
        return np.asarray(file["train/data"], np.float32)


def generated_digits(num_images: int = 2000, seed: int = 0) -> np.ndarray:
    """Images with digit-like strokes, float32 (num_images, 256) in [0, 1].

    Each of ten classes is a closed polygon through four random points; an image moves the points a
    little and draws the line with a soft pen.
    """
    rng = np.random.default_rng(seed)
    centres = rng.uniform(3, SIDE - 3, (10, 4, 2))
    corners = centres[rng.integers(10, size=num_images)]
    corners = corners + rng.normal(0, 0.7, corners.shape)
    steps = np.linspace(0, 1, 8, endpoint=False)[:, None]
    ends = np.roll(corners, -1, axis=1)
    pen = corners[:, :, None] * (1 - steps) + ends[:, :, None] * steps
    pen = pen.reshape(num_images, -1, 1, 2)
    pixels = np.stack(np.divmod(np.arange(SIDE * SIDE), SIDE), axis=-1)[None, None]
    images = np.empty((num_images, SIDE * SIDE), np.float32)
    for start in range(0, num_images, 100):
        chunk = slice(start, start + 100)
        square = np.square(pen[chunk] - pixels).sum(-1).min(axis=1)
        images[chunk] = np.exp(-0.7 * square)
    return images
