"""A worker of the lab: the product's worker with a fault's decisions. `python -m pagefence.lab.worker FAULT GUARDS`."""

from __future__ import annotations

import sys

from pagefence.engine import worker
from pagefence.lab import faults

if __name__ == "__main__":
    sys.exit(worker.main(faults.find(sys.argv[1]).decisions(sys.argv[2])))
