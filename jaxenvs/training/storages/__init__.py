"""What becomes of collected experience before it is learned from."""

from jaxenvs.training.storages.gae import gae as gae
