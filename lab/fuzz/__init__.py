"""Small whole searches with random settings, which must end in a result or an error that names a
setting.

    python -m lab.fuzz --searches 200
    python -m lab.fuzz --seed 7 --only 31

Models are stand-ins that give blank answers, fail, refuse and all agree. Some searches are saved,
and some repeated with a new model. The seed is printed; with it and its number a search can be
repeated.
"""
