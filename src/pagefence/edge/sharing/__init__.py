"""What processes of an edge must know of each other's requests, told through Redis; never on a request's path."""
