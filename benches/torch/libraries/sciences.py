"""Libraries of the sciences: Gaussian processes, differential equations, and networks that keep symmetries of space."""

import torch
from torch.nn import functional

from programs.setting import take_step


def gaussian_process(setting, count):
    """Fits a Gaussian process of gpytorch to data of varying number: blocks that grow with its square come and go."""
    import gpytorch

    draw = setting.draw(201)

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, places, values, likelihood):
            super().__init__(places, values, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(ard_num_dims=6))

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    for step in range(count):
        number = draw.randrange(*setting.pick((2000, 9000), (8, 20)))
        places = torch.rand(number, 6, device=setting.device)
        values = places.sum(1).sin() + 0.1 * torch.randn(number, device=setting.device)
        likelihood = gpytorch.likelihoods.GaussianLikelihood().to(setting.device)
        model = Exact(places, values, likelihood).to(setting.device)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
        evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        with gpytorch.settings.max_cholesky_size(10**6 if step % 2 else 10):
            for _ in range(3):
                loss = take_step(-evidence(model(places), values), optimiser)
            model.eval(), likelihood.eval()
            with torch.no_grad(), gpytorch.settings.fast_pred_var():
                found = likelihood(model(torch.rand(number // 4, 6, device=setting.device)))
                yield loss + found.mean.mean()


def neural_ode(setting, count):
    """Trains a differential equation by torchdiffeq, whose solver takes as many steps as the data needs."""
    from torchdiffeq import odeint, odeint_adjoint

    draw = setting.draw(202)
    width = setting.pick(512, 8)

    class Field(torch.nn.Module):
        """How fast each value changes."""

        def __init__(self):
            super().__init__()
            layers = [torch.nn.Linear(64, width), torch.nn.Tanh(), torch.nn.Linear(width, width), torch.nn.Tanh()]
            self.net = torch.nn.Sequential(*layers, torch.nn.Linear(width, 64))

        def forward(self, time, x):
            return self.net(x) * (1 + time)

    with setting.building():
        field = Field()
    optimiser = torch.optim.Adam(field.parameters(), lr=1e-3)
    for step in range(count):
        start = torch.randn(draw.randrange(*setting.pick((1500, 10000), (2, 6))), 64, device=setting.device)
        times = torch.linspace(0, draw.uniform(0.5, 2.0), draw.randrange(3, 12), device=setting.device)
        solve = odeint_adjoint if step % 3 == 2 else odeint
        found = solve(field, start, times, rtol=1e-3, atol=1e-4)
        yield take_step(functional.mse_loss(found[-1], start.flip(0)), optimiser)


def equivariant(setting, count):
    """Trains a network of e3nn on clouds of atoms, whose number and neighbours vary."""
    from e3nn import o3
    from e3nn.nn import FullyConnectedNet

    draw = setting.draw(203)
    inside = o3.Irreps(setting.pick("32x0e + 32x1o + 16x2e", "4x0e + 2x1o"))
    ball = o3.Irreps.spherical_harmonics(2)
    product = o3.FullyConnectedTensorProduct(inside, ball, inside, shared_weights=False)
    weights = FullyConnectedNet([10, setting.pick(32, 8), product.weight_numel], torch.nn.functional.silu)
    first, last = o3.Linear("8x0e", inside), o3.Linear(inside, "1x0e")
    modules = torch.nn.ModuleList([product, weights, first, last]).to(setting.device)
    optimiser = torch.optim.Adam(modules.parameters(), lr=1e-3)
    centres = torch.linspace(0, 1, 10, device=setting.device)
    for _ in range(count):
        atoms = draw.randrange(*setting.pick((200, 700), (5, 9)))
        places = torch.rand(atoms, 3, device=setting.device)
        near = (torch.cdist(places, places) < setting.pick(0.2, 0.8)).fill_diagonal_(False)
        here, there = near.nonzero(as_tuple=True)
        way = places[there] - places[here]
        x = first(torch.randn(atoms, 8, device=setting.device))
        for _ in range(2):
            scale = (-((way.norm(dim=1, keepdim=True) - centres) ** 2) * 50).exp()
            shape = o3.spherical_harmonics(ball, way, normalize=True, normalization="component")
            message = product(x[there], shape, weights(scale))
            x = x + torch.zeros_like(x).index_add_(0, here, message) / len(here) ** 0.5
        yield take_step(last(x).square().mean(), optimiser)
