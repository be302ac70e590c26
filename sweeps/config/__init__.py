"""What one run is: fields, their types and the rules between them."""
