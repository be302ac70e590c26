"""How long weights take from the trainer to the slots, and how often to send them."""
