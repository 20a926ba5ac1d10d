"""Too fast to be true: an answer that came before its prompt can have been computed is made from something else."""
