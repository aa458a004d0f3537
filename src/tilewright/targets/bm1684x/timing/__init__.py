"""When commands run: estimate.py has their cycles, model.py the constants, banks.py the use of lanes and banks."""
