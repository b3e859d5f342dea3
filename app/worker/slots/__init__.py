"""The slot brokers, which give slots to jobs: from a pool of one control plane, or from a shared pool."""
