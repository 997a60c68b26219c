"""``python -m hashlearn.cli``."""

from hashlearn.cli.app import main

if __name__ == "__main__":
    main()
