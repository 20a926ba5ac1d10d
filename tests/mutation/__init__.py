"""Mutation testing of `pool/` and `protocol/`: `make mutation`. A change that no test notices is a missing test.

`operators` says how one piece of syntax can be wrong, `mutants` where that is tried, `plan` how a mutant is put into
a process, `session` what happens to it there, `ledger` what is known already, `explained` which survivors change
nothing, and why.
"""
