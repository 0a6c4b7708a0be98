"""Adopts kernels of other people: finds out what a ``.cu`` file's kernel expects to be given.

What each argument means cannot be told from its position, but it can be tried: ``search`` lets the
host back end launch one reading after another on small exact problems, the likeliest first, and
keeps what computes the product without a stray access. ``adopting.adopt`` is the whole of it.
"""
