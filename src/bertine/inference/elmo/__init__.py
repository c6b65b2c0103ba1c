"""What an ELMo says of text: the layers of tagged words, and perplexity."""
