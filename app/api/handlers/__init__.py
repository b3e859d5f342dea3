"""What each operation does: read the request, ask the control plane, render."""
