"""`slotwise demo`: a year of flights through an elastic job, and the proof that its output is exact."""
