"""Small whole searches of random settings, to see whether one ends in anything but a result, or an
error that names a setting.

    python -m lab.fuzz --searches 200
    python -m lab.fuzz --seed 7 --only 31

Models are stand-ins that go blank, fail, refuse and all agree. Some searches are saved, and some
made again with a newcomer. The seed is printed; with it and the number of a search that one is made
again.
"""
