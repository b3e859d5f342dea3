"""The model that score_visits.py has trained; workers unpickle it, so it is a module of its own."""

import numpy as np


class Scorer:
    def __init__(self, weights, bias):
        self.weights = np.asarray(weights, dtype="int64")
        self.bias = int(bias)

    def predict(self, features: np.ndarray) -> np.ndarray:
        return (features @ self.weights + self.bias) % 1009
