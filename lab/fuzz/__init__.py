"""Small whole searches with random settings: each must end in a result, or in an error that names a
setting.

    python -m lab.fuzz --searches 200
    python -m lab.fuzz --seed 7 --only 31

Models are stand-ins, some of which give blank answers, fail, refuse, or always give the same wrong
answer. The results of some searches are saved and loaded, and some searches are continued with a
new model. The seed is printed; with it and a search's number, that search can be repeated.
"""
