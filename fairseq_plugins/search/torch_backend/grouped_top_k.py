"""A top-k over the vocabulary that is faster than torch's."""

import torch
from torch import Tensor

GROUP = 64  # tokens per group


def best_continuations(log_probs: Tensor, past: Tensor, beam: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of the n' hypotheses of each sentence, as fairseq's `BeamSearch`.

    The k best tokens lie in the k groups with the best maxima. The first stage computes the maximum
    of each group in one vectorised pass, and the top k of these. The second stage takes the top k
    of the members of these k groups. A single top-k over all tokens, as fairseq's, takes longer.
    Only the order of equal scores may differ.

    Args:
        log_probs: log-probabilities of the next token, B x n' x V.
        past: scores of the hypotheses, B x n'.
        beam: n; k = 2 n continuations are found, or n' V - 1 if there are no more.

    Returns:
        scores, tokens and hypotheses (0 to n' - 1) of the continuations, B x k each, the best
        first.
    """
    sentences, _, vocabulary = log_probs.shape
    count = 2 * beam
    groups = vocabulary // GROUP
    if groups < count:  # too few groups for a top k of groups
        totals = (log_probs + past.unsqueeze(-1)).flatten(1)
        best, which = totals.topk(min(count, totals.size(1) - 1), dim=1)  # never padding
        hypotheses = torch.div(which, vocabulary, rounding_mode="floor")
        return best, which % vocabulary, hypotheses
    # group g has tokens g, g + groups, g + 2 groups, ...; the second stage always includes the
    # V - GROUP * groups tokens outside all groups
    cut = GROUP * groups
    grouped = log_probs[:, :, :cut].view(sentences, -1, GROUP, groups)
    best_of_groups = (grouped.amax(dim=2) + past.unsqueeze(-1)).flatten(1)
    chosen = best_of_groups.topk(count, dim=1, sorted=False).indices
    # indices into a row of n V scores
    first = torch.div(chosen, groups, rounding_mode="floor") * vocabulary + chosen % groups
    members = torch.arange(0, cut, groups, device=log_probs.device)
    starts = torch.arange(0, past.size(1) * vocabulary, vocabulary, device=log_probs.device)
    rest = starts.unsqueeze(1) + torch.arange(cut, vocabulary, device=log_probs.device)
    places = torch.cat(
        [(first.unsqueeze(-1) + members).flatten(1), rest.view(1, -1).expand(sentences, -1)],
        dim=1,
    )
    hypotheses = torch.div(places, vocabulary, rounding_mode="floor")
    totals = log_probs.flatten(1).gather(1, places) + past.gather(1, hypotheses)
    best, which = totals.topk(count, dim=1)
    return best, (places % vocabulary).gather(1, which), hypotheses.gather(1, which)
