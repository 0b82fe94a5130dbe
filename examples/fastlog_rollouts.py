"""Many rollouts of a small recurrent policy, keeping only what its memory cell does."""

import torch
from torch import Tensor, nn

import torchlens as tl


class Policy(nn.Module):
    """Looks at an observation, updates its memory, chooses an action."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 16), nn.Tanh())
        self.cell = nn.GRUCell(16, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, observation: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        memory = self.cell(self.encoder(observation), memory)
        return self.head(memory), memory


def rollouts(policy: Policy, episodes: int, steps: int) -> tl.fastlog.Recording:
    """Run some episodes in a world that pushes back; every step is a pass, named by episode and step."""
    with torch.no_grad(), tl.fastlog.Recorder(policy, keep_module="cell") as recorder:
        for episode in range(episodes):
            observation, memory = torch.randn(1, 4), torch.zeros(1, 8)
            for step in range(steps):
                logits, memory = recorder.log([observation, memory], sample_id=f"{episode}/{step}")
                observation = 0.9 * observation + 0.1 * logits.argmax() + 0.05 * torch.randn(1, 4)
    return recorder.recording


if __name__ == "__main__":
    torch.manual_seed(0)
    recording = rollouts(Policy(), episodes=20, steps=50)
    print(recording.summary())
    states = torch.cat([record.activation for record in recording.by_label["cell:1"]])
    print(f"\nmemory states: {tuple(states.shape)}, from {recording[0].sample_id} to {recording[-1].sample_id}")
    moved = (states[1:] - states[:-1]).norm(dim=1).view(-1)
    print(f"the memory moves by {moved.mean():.3f} a step on average")
