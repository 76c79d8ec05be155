"""Trace every recipe on the installed stack, and write the traces to repro/predict/traces. Takes a minute.

python -m tools.traces
"""

from repro.predict.trace.trace import all_traces
from repro.predict.traces import save

if __name__ == "__main__":
    print(save(all_traces()))
