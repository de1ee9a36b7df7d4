"""A file in the shape of the paper's largest set is prepared and trained on in bounded memory."""

import keras
import numpy as np
import pytest
from shipped import config_path

from softbench import __main__ as command
from softbench.bench import records
from softbench.datasets import prepare_app

NUM_FEATURES, NUM_CLASSES = 1_617_899, 325_056  # WikiLSHTC-325K


def write_rows(path, size):
    """A file of `size` rows of 42 features and 3 labels, as the set has on average."""
    rng = np.random.default_rng(size)
    with path.open("w") as file:
        file.write(f"{size} {NUM_FEATURES} {NUM_CLASSES}\n")
        for _ in range(size):
            labels = rng.choice(NUM_CLASSES, 3, replace=False)
            weights = " ".join(f"{i}:0.5" for i in np.unique(rng.integers(NUM_FEATURES, size=42)))
            file.write(f"{','.join(map(str, labels))} {weights}\n")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rff_rows", "rff_shared_rows"])
def test_wikilshtc_shape_trains_in_8_gb(tmp_path, method):
    (tmp_path / "files" / "xmc").mkdir(parents=True)
    for split, size in (("train", 4_000), ("test", 200)):
        write_rows(tmp_path / "files" / "xmc" / f"wikilshtc-325k_{split}.txt", size)
    where = [f"--data_dir={tmp_path / 'files'}", f"--out={tmp_path / 'prepared'}"]
    assert prepare_app.main(["", "--dataset=xmc/wikilshtc-325k", *where]) == 0
    options = [f"--config.methods={method}", "--config.epochs=1", "--config.steps_per_epoch=10"]
    options += [f"--backend={keras.backend.backend()}", f"--data_dir={tmp_path / 'prepared'}"]
    config = f"--config={config_path('xmc')}:wikilshtc-325k"
    assert command.main(["softbench", config, f"--workdir={tmp_path / 'out'}", *options]) == 0
    (record,) = records.read_all(tmp_path / "out")
    assert (record["status"], record["num_classes"]) == ("ok", NUM_CLASSES)
    assert record["peak_memory_mb"]["host"] < 8 * 1024
