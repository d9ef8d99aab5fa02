"""What is run next and with what: pure decisions and the state that they are made on."""
