"""PPO in PyTorch on one page, after CleanRL's ppo.py, with environments that return tensors.

python examples/cleanrl_ppo.py
"""

import torch
from torch import nn
from torch.distributions import Categorical

import jaxenvs


def main(total_steps: int = 80_000, num_envs: int = 16, num_steps: int = 128) -> float:
    """Returns the mean return of the last 100 episodes of training."""
    torch.set_num_threads(1)  # a small network is not faster with more threads
    torch.manual_seed(0)
    envs = jaxenvs.make_gym("CartPole-v1", num_envs, seed=0, output="torch")
    actor = nn.Sequential(nn.Linear(4, 128), nn.Tanh(), nn.Linear(128, 2))
    critic = nn.Sequential(nn.Linear(4, 128), nn.Tanh(), nn.Linear(128, 1))
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=4e-3, eps=1e-5)
    returns, running = [], torch.zeros(num_envs)
    observation, done = envs.reset()[0], torch.zeros(num_envs, dtype=torch.bool)
    for _ in range(total_steps // (num_envs * num_steps)):
        rows = []
        for _ in range(num_steps):
            with torch.no_grad():
                policy, value = Categorical(logits=actor(observation)), critic(observation)[:, 0]
            action, is_reset = policy.sample(), done  # where an episode ended, this step resets
            following, reward, terminated, truncated, _ = envs.step(action)
            done, running = terminated | truncated, running + reward
            logp = policy.log_prob(action)
            rows.append((observation, action, logp, value, reward, terminated, done, is_reset))
            returns, running = returns + running[done].tolist(), running.masked_fill(done, 0.0)
            observation = following
        columns = [torch.stack(column) for column in zip(*rows, strict=True)]
        *batch, value, reward, terminated, ended, is_reset = columns
        with torch.no_grad():
            following = torch.cat([value[1:], critic(observation).T])
        # Next-step autoreset: row t + 1 has the last observation of an episode that ended in row t.
        delta = reward + 0.98 * following * ~terminated - value
        advantage = torch.zeros(num_steps + 1, num_envs)
        for t in reversed(range(num_steps)):
            advantage[t] = delta[t] + 0.98 * 0.8 * advantage[t + 1] * ~ended[t]
        batch = [part[~is_reset] for part in (*batch, value + advantage[:-1], advantage[:-1])]
        for _ in range(4):
            for pick in torch.randperm(len(batch[0])).split(256):
                seen, action, logp, target, gain = (part[pick] for part in batch)
                ratio = (Categorical(logits=actor(seen)).log_prob(action) - logp).exp()
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                policy_loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
                loss = policy_loss + 0.5 * (critic(seen)[:, 0] - target).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print(f"{len(returns):5d} episodes, mean return {torch.tensor(returns[-100:]).mean():.1f}")
    return float(torch.tensor(returns[-100:]).mean())


if __name__ == "__main__":
    main()
