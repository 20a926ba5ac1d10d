"""`python -m pagefence` is the `pagefence` command."""

from pagefence.cli import main

if __name__ == "__main__":
    main()
