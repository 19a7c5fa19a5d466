"""A simulated GPU fleet that serves real exposition text, with faults and the truth about them."""
