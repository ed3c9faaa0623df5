"""Toy text: small tasks with a finite number of states."""

from jaxenvs.envs.toy_text._tabular import Tabular, TabularState, TransitionTable
from jaxenvs.envs.toy_text.blackjack import Blackjack, BlackjackDraws, BlackjackState
from jaxenvs.envs.toy_text.cliff_walking import CliffWalking
from jaxenvs.envs.toy_text.frozen_lake import FrozenLake, generate_random_map
from jaxenvs.envs.toy_text.n_chain import NChain
from jaxenvs.envs.toy_text.taxi import Taxi, TaxiState

__all__ = [
    "Blackjack",
    "BlackjackDraws",
    "BlackjackState",
    "CliffWalking",
    "FrozenLake",
    "NChain",
    "Tabular",
    "TabularState",
    "Taxi",
    "TaxiState",
    "TransitionTable",
    "generate_random_map",
]
