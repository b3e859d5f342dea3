"""The REST API: Flink's paths, Slotwise's own paths, and the driver protocol."""
