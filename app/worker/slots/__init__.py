"""Where jobs get their slots: a pool of one control plane, or one that several share."""
