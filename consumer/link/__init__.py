"""What the main process and its device processes both know: messages, frames, how one starts."""
