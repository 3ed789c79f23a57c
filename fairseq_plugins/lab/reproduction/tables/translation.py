"""The recipes of this package side by side. No paper has these tables."""

from .table import BASELINE, BLEU_AND_OTHERS, Published, Row, Table

# runs by importance: one seed of each model, then further seeds of two
_PLAIN = ("fastformer", "mscffn", "ftc_mscffn")
_FIRST = ("transformer", "ftc", "ftc_rdrop", "ftc_simcut")
_LATER = [*((name, seed) for seed in (2, 3) for name in ("transformer", "ftc"))]
_LATER += [("fc", 1), ("tc", 1)]
_SIMCUT = "--criterion label_smoothed_cross_entropy_simcut"

_M30K, _FEW = "multi30k_fine_tune", "low_resource_fine_tune"


def _after_both(name: str, title: str, recipe: str, words: str, then: str, last: str = "") -> Row:
    """A row that begins on both directions; then come the settings `then` and the words `last`."""
    title += ", both directions first" + ", then SimCut" * (last == _SIMCUT)
    both = "both-directions"
    return Row(name, (title,), recipe, words, begins=both, then=then, then_words=last)


TRANSLATION = Table(
    title="Translation recipes",
    columns=("recipe",),
    rows=[
        Row("transformer", ("Transformer",), BASELINE),
        Row("ftc", ("FTC",), "transformer_ftc"),
        Row("ftc_rdrop", ("FTC, R-Drop",), "ftc_rdrop"),
        Row("ftc_simcut", ("FTC, SimCut",), "transformer_ftc", _SIMCUT),
        Row("fastformer", ("Fastformer",), "fastformer"),
        Row("mscffn", ("MSCFFN",), "mscffn"),
        Row("ftc_mscffn", ("FTC, MSCFFN",), "ftc_mscffn"),
        Row("ftc_deep", ("FTC 6,6 + 1",), "transformer_ftc_deep"),
        Row("fc", ("FC",), "transformer_fc"),
        Row("tc", ("TC",), "transformer_tc"),
    ],
    metrics=BLEU_AND_OTHERS,
    settings=("reproduce_translation",),
    average=10,
    runs=[*((name, 1) for name in (*_FIRST, *_PLAIN, "ftc_deep")), *_LATER],
    timed=True,
    fixed=("--encoder-layers",),
)

_FUSED = "--criterion label_smoothed_cross_entropy_fused"
# to add to `fastformer`: the Transformer on the fast path, which fairseq's own class does not have;
# the function is the same
_FAST = f"--encoder-token-mixer softmax --training-path fast {_FUSED}"

# Multi30k as in Wu et al. 2021, "Good for Misconceived Reasons": 4 + 4 layers
_BLOCKS = "--encoder-blocks 2,2"
MULTI30K = Table(
    title="Translation recipes on Multi30k",
    columns=("recipe",),
    rows=[
        Row("transformer", ("Transformer",), BASELINE, f"--encoder-layers 4 {_FUSED}"),
        Row("ftc", ("FTC",), "transformer_ftc", f"{_BLOCKS} {_FUSED}"),
        Row("ftc_rdrop", ("FTC, R-Drop",), "ftc_rdrop", _BLOCKS),
        Row("ftc_simcut", ("FTC, SimCut",), "transformer_ftc", f"{_BLOCKS} {_SIMCUT}"),
        _after_both("ftc_both", "FTC", "transformer_ftc", f"{_BLOCKS} {_FUSED}", _M30K),
        Row("fastformer", ("Fastformer",), "fastformer", f"--encoder-layers 4 {_FUSED}"),
        Row("mscffn", ("MSCFFN",), "mscffn", f"--encoder-layers 4 {_FUSED}"),
        Row("ftc_mscffn", ("FTC, MSCFFN",), "ftc_mscffn", f"{_BLOCKS} {_FUSED}"),
        Row("fc", ("FC",), "transformer_fc", f"{_BLOCKS} {_FUSED}"),
        Row("tc", ("TC",), "transformer_tc", f"{_BLOCKS} {_FUSED}"),
        _after_both("fc_both", "FC", "transformer_fc", f"{_BLOCKS} {_FUSED}", _M30K),
        _after_both(
            "transformer_both", "Transformer", "fastformer", f"--encoder-layers 4 {_FAST}", _M30K
        ),
    ],
    metrics=BLEU_AND_OTHERS,
    settings=("multi30k",),
    precision="fastest",
    average=10,
    runs=[*((name, 1) for name in (*_FIRST, "ftc_both", *_PLAIN)), *_LATER]
    + [("fc_both", 1), ("transformer_both", 1)],
    timed=True,
    fixed=("--encoder-layers",),
)

# Few pairs, such as 48,880 of IWSLT'14. The Transformer has 6 + 3 layers.
_SAMPLED = "--task translation_sampled --bpe-dropout 0.1"
LOW_RESOURCE = Table(
    title="Translation with few pairs",
    columns=("recipe",),
    rows=[
        Row("transformer", ("Transformer",), "fastformer", _FAST),
        Row("ftc", ("FTC",), "transformer_ftc", _FUSED),
        Row("ftc_sampled", ("FTC, BPE-dropout",), "transformer_ftc", f"{_FUSED} {_SAMPLED}"),
        Row("ftc_simcut", ("FTC, SimCut",), "transformer_ftc", _SIMCUT),
        _after_both("ftc_both", "FTC", "transformer_ftc", _FUSED, _FEW),
        _after_both("ftc_both_simcut", "FTC", "transformer_ftc", _FUSED, _FEW, _SIMCUT),
        _after_both(
            "ftc_all", "FTC, BPE-dropout, SimCut", "transformer_ftc", f"{_SIMCUT} {_SAMPLED}", _FEW
        ),
        Row("ftc_deep", ("FTC 6,6 + 1",), "transformer_ftc_deep", f"--decoder-layers 1 {_FUSED}"),
        _after_both("transformer_both", "Transformer", "fastformer", _FAST, _FEW),
    ],
    metrics=BLEU_AND_OTHERS,
    settings=("low_resource",),
    precision="fastest",
    average=5,
    runs=[(name, 1) for name in ("ftc", "transformer", "ftc_both", "ftc_both_simcut", "ftc_all")]
    + [(name, 1) for name in ("ftc_deep", "ftc_sampled", "ftc_simcut", "transformer_both")],
    # the source counts target words, 0.1 to 3.2 million: about 20 in a pair
    by_pairs=Published(
        "Sennrich & Zhang 2019, IWSLT'14 German-English",
        "sacreBLEU",
        ((5000, 16.6), (10000, 20.6), (20000, 24.4), (40000, 28.7), (80000, 30.8), (159000, 32.8)),
    ),
    timed=True,
)
