"""The science report: the experiments of the papers run one by one, stored, and shown on one page."""
