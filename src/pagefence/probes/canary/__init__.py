"""One tenant plants words, another reads: whose words are in the answers?"""
