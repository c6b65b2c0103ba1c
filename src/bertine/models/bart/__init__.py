"""BART: an encoder that reads a text both ways, and a decoder that writes one."""
