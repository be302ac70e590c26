"""Run the command as ``python -m lagsweep.sweeps.cli``."""

from .main import main

if __name__ == "__main__":
    main()
