"""Environments, with one package per family."""
