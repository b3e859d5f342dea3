"""The core: a pure function from a state and an event to the next state and the effects to perform."""
