"""The side of the clients: connections, requests, replies."""
