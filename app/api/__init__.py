"""The REST API: Flink's paths, our own, and the driver protocol. It knows the control plane by its facade
only.
"""
