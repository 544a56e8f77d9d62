"""Training phases: autoencoder, shot (a and c), game (b), and their assembly from a checkpoint."""
