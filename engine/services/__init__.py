"""Table services: what is due, what they plan, and how a plan is carried out."""
