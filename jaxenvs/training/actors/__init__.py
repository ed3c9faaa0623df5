"""Actors: policies and critics."""

from jaxenvs.training.actors.actor import Actor as Actor
from jaxenvs.training.actors.actor import Features as Features
from jaxenvs.training.actors.actor import Networks as Networks
from jaxenvs.training.actors.actor_critic import ActorCritic as ActorCritic
from jaxenvs.training.actors.actor_critic import ActorCriticNetworks as ActorCriticNetworks
from jaxenvs.training.actors.actor_twin_q import ActorTwinQ as ActorTwinQ
from jaxenvs.training.actors.actor_twin_q import TwinQNetworks as TwinQNetworks
from jaxenvs.training.actors.q_network import QNetwork as QNetwork
from jaxenvs.training.actors.q_network import QNetworks as QNetworks
