"""Texts of common words whose numbers of words are log-normal, as those of many corpora are."""

import random

_CHARACTERS_PER_TOKEN = 4
_VOCABULARY = """
the of and to in a is that for it as was with be by on not he his but at are this have from or had
an they which one you were all her she there would their we him been has when who will no more if
out so up said what its about than into them can only other time new some could these two may first
then do any like my now over such our man me even most made after also did many off before must well
back through years where much your way down should because long each just state those people too mr
how little good world make very year still see own work men day get here between both under never
same another know while last might us great old come since against right came take used himself few
house use during without again place american around however home small found thought went say part
once general high upon school every don
"""


def word_texts(count, seed=0):
    """So many texts of 3 to 240 words, the same ones for the same seed."""
    rng, vocabulary = random.Random(seed), _VOCABULARY.split()
    return [_text(rng, vocabulary) for _ in range(count)]


def stub_tokens(text):
    """Tokens that `device_stub` counts in a text."""
    return max(1, -(-len(text) // _CHARACTERS_PER_TOKEN))


def _text(rng, vocabulary):
    words = min(240, max(3, int(rng.lognormvariate(3.2, 0.9))))
    return " ".join(rng.choice(vocabulary) for _ in range(words))
