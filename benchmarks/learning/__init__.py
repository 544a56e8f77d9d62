"""Learning benchmark: claims that training works, measured with tiny networks on a CPU in minutes."""
