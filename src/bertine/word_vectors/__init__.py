"""Static vectors of words: word2vec's training, its files, and what is done with them."""
