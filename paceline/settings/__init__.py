"""Where settings come from: YAML, the environment, presets, files and packages of users."""
