"""The other sides of the comparisons, written as a competent user of those libraries would."""
