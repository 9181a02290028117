"""Train the packaged network of threat detection, and print its accuracy on flows of another seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from riot_ops.dataflows.streambench.threat import MODEL_FILE, train_model
from riot_ops.models import NetworkModel
from riot_ops.streams.streambench import FlowsSource


def main() -> None:
    """Write src/riot_ops/dataflows/streambench/threat.model."""
    model = NetworkModel.from_bytes(train_model(7_000, seed=1))
    path = Path(__file__).parents[1] / "src/riot_ops/dataflows/streambench" / MODEL_FILE
    path.write_bytes(model.to_bytes())
    x, label = FlowsSource(seed=2).vectors()
    print(f"{path}: {np.mean(model.predict(x) == label):.4f} of other flows are classified correctly")


if __name__ == "__main__":
    main()
