"""What older releases of torch and fairseq have otherwise."""

import re

import fairseq
import torch

OLD_FAIRSEQ = fairseq.__version__ == "0.12.2"
TORCH_2 = int(torch.__version__.split(".")[0]) >= 2
# for torch.load of any types; older releases do not know the word
WHOLE = {"weights_only": False} if TORCH_2 else {}
# fairseq 0.12.2 keeps an encoder's weights twice; `compat` drops the copies when it loads a file
FUSED_COPY = re.compile(r"(.*\.)?encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)")
# what fairseq 0.12.2 saves and never trains: those copies, and a buffer that it never fills
NOT_TRAINED = re.compile(FUSED_COPY.pattern + r"|.*_float_tensor")
