"""What ``pytest-gemm init`` writes beside the shipped kernels."""

PYPROJECT = """\
[tool.pytest.ini_options]
testpaths = ["tests"]
gemm_kernels = ["kernels"]
gemm_baselines = "baselines"
"""

TEST = """\
def test_gemm(gemm):
    gemm.check()
"""

# Times are kept out of version control where they belong to one CPU.
GIT_IGNORE = """\
# Times of a CPU belong to one machine.
/host-*/
"""

WORKFLOW = """\
name: kernels

on:
  push:
  pull_request:

permissions:
  contents: read

jobs:
  # A hosted runner has no GPU, and another CPU each time. What is exact needs neither: every kernel
  # is checked, gives the bits that baselines/exact holds, and moves as much memory. A kernel that
  # is not stored there fails (strict): see baselines/README.md.
  exact:
    runs-on: ubuntu-latest
    timeout-minutes: 20
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - run: python -m pip install 'pytest-gemm[host]'
      - run: python -m pytest --gemm-baseline=strict

  # Times, on a machine of yours with a GPU. To switch this on, store its sessions as
  # baselines/README.md says, and set the repository's variable GEMM_GPU_RUNNER to the label of its
  # runner. Only what is pushed runs there: a fork's pull request must not reach your machine.
  times:
    if: vars.GEMM_GPU_RUNNER != '' && github.event_name == 'push'
    runs-on: ${{ vars.GEMM_GPU_RUNNER || 'ubuntu-latest' }}
    timeout-minutes: 30
    steps:
      - uses: actions/checkout@v4
      - run: python3 -m venv .venv
      - run: .venv/bin/python -m pip install 'pytest-gemm[cuda13]'
      - run: .venv/bin/pytest-gemm doctor
      - run: .venv/bin/pytest --gemm-bench --gemm-device=cuda --gemm-baseline=strict
"""

BASELINES = """\
# What is stored here

`exact/` holds what is the same on every machine: a digest of the bits of each result, and how much
memory each kernel moves. CI compares with it, without a GPU, and fails where a kernel is missing.
After a new kernel, or a change of results that you want:

    pytest --gemm-baseline=update
    git add baselines

`<device>/` holds times of one GPU model. On the machine that is to judge them, three times:

    pytest --gemm-bench --gemm-baseline=update
    git add baselines

Times of a CPU go to `host-.../`, which git ignores: they mean nothing on another machine.
"""
