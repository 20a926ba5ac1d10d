"""The side of the fleet: connections, which router is asked, what its answers must look like."""
