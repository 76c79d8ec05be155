"""The commands, one file each: `Asked` declares the options, `main(asked)` returns what is printed, or runs and returns
the exit code.

Shared files: `devices.py` (options that choose GPUs or processes), `preflight.py` (checks before a measurement),
`stopping.py` (stop signals), `driver.py` (execution of a run, in pytest), `against.py` (`compare --against`),
`calculator.py` (`cost` without a model) and `certificate.py` (`verify` of a file). A command's own imports must be
fast: what needs torch, pytest or a plotting library is imported in `main`.
"""

HELP = {
    "run": "measure, extrapolate to days, compare with the paper, report (the default)",
    "report": "write report.html and report.md of a run, or of the published numbers alone",
    "table": "print a table of the paper, with measured values beside it",
    "audit": "say of every published cell whether it can be true, by the FLOP/s that it implies",
    "claims": "recompute the numbers in the papers' sentences, and say which hold",
    "predict": "predict days, memory and step time on GPUs that are not here, without torch",
    "plan": "say how long a training script of your own takes on a GPU that is not here, and whether it fits",
    "cost": "say what training a model costs on each machine, bought or rented, and when owning pays",
    "track": "log a run's trials, verdicts and report with TensorBoard or Weights & Biases",
    "verify": "list the runs that decide most of the paper for a budget, or in a time; or check a certificate",
    "contribute": "copy a run's results without names of people and machines, checked, for others to read",
    "compare": "say what became slower or faster, or broke: between two runs, or with another software stack",
    "export": "write a script and configurations that train with the best settings, measured or predicted",
    "survey": "ask the paper's survey again, count its answers, and say who can train what",
    "list": "list the recipes, the GPUs that we know, or the paper's settings",
    "doctor": "say what this machine, and this container image, is fit for",
    "slurm": "print a batch script that runs it on a cluster with SLURM, on one node or several",
    "probe": "measure this machine's speeds (products, copies, launches, exchanges) for predictions on it",
    "lab": "predict a GAN's runtime from one epoch, train it and compare, as the lab report did",
}
