"""Static word vectors: word2vec's training, its files, and queries."""
