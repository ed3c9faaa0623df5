"""Code that makes programs faster on CPUs: the same results, sooner.

Nothing here belongs to the contract of environments, and users need to know none of it.
"""
