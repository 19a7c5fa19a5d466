"""No tables yet: rules are data files and the engine keeps nothing that the store could not give back."""
