"""``fairseq-train --user-dir "$(python -m fairseq_plugins)" ...``: prints this package's folder."""

from pathlib import Path

if __name__ == "__main__":
    print(Path(__file__).resolve().parent)
