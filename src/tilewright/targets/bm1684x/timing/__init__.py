"""The times of commands: estimate.py has cycles, model.py has constants, banks.py has the use of lanes and banks."""
