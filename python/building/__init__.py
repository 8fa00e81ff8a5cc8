"""What builds the wheel, and is not in it: scripts/wheel.sh and the builder of wheels use it."""
