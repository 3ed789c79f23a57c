"""The equations of the three papers, written out slowly: the ground truth of the tests.

Everything here works on ONE sentence, without padding, as a `T x C` tensor, with loops over
positions, heads and subspaces. So nothing here can depend on padding, on its side or on other
sentences: what the package computes on batches has to equal it, sentence by sentence. Nothing is
imported from the package. Gradients come from autograd over these loops; use float64.
"""
