"""Trains TorchRL's PPO on CartPole-v1, with its own collector and GymWrapper around a batch.

python examples/torchrl_collector.py
"""

import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import jaxenvs


def main(total_steps: int = 60_000, num_envs: int = 16) -> float:
    """Returns the mean return of 16 episodes after training."""
    torch.set_num_threads(1)  # a small network is not faster with more threads
    torch.manual_seed(0)
    options = {"autoreset_mode": "disabled"}  # TorchRL resets instances itself
    envs = jaxenvs.make_gym("CartPole-v1", num_envs, seed=0, **options)
    envs = GymWrapper(envs, categorical_action_encoding=True)
    network, critic = (
        nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n))
        for n in (2, 1)
    )
    actor = ProbabilisticActor(
        TensorDictModule(network, in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        spec=envs.action_spec,
        distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
    )
    value = ValueOperator(critic, in_keys=["observation"])
    advantage = GAE(gamma=0.98, lmbda=0.8, value_network=value)
    loss = ClipPPOLoss(actor, value, entropy_bonus=False)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3)
    size = 64 * num_envs
    for batch in Collector(envs, actor, frames_per_batch=size, total_frames=total_steps):
        for _ in range(8):
            flat = advantage(batch).reshape(-1)
            for rows in torch.randperm(size).split(256):
                losses = loss(flat[rows])
                optimizer.zero_grad()
                (losses["loss_objective"] + losses["loss_critic"]).backward()
                optimizer.step()
        print(f"episodes that ended among these {size} steps: {int(batch['next', 'done'].sum())}")

    test_envs = jaxenvs.make_gym("CartPole-v1", 16, seed=1, **options)
    test = GymWrapper(test_envs, categorical_action_encoding=True)
    steps = test.rollout(500, actor, break_when_all_done=True)  # finished instances get 0
    mean = float(steps["next", "reward"].sum(1).mean())
    print(f"mean return after training {mean:.1f}")
    return mean


if __name__ == "__main__":
    main()
