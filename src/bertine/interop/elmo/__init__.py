"""Files of ELMo: those that were published, and our model directory."""
